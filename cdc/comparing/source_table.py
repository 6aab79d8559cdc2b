"""A captured table in its source: its columns, which of them can be compared, and how its rows are read.

Models of captured tables held against the source's columns, without a state: what a comparison would say of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.comparing.canonical import SESSION, ColumnForm, SourceType, source_text
from cdc.comparing.report import RANGED, CapturedModel, Key, KeyColumn, Rows, StateTable, key_column
from cdc.errors import SourceNotReady
from cdc.findings import Finding
from cdc.identifiers import TableName, quoted
from cdc.source.catalogue import typed_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from cdc.connectors.postgres import PostgresSource

_BY_BYTES: Final = "upper(replace({0}, '-', '')) IN ('C', 'POSIX', 'C.UTF8')"
# Servers before 15 know libc's and ICU's collations by a column that they lack for the database.
_DATABASE: Final = f"""(SELECT CASE coalesce(to_jsonb(d) ->> 'datlocprovider', 'c')
    WHEN 'b' THEN true WHEN 'c' THEN {_BY_BYTES.format("d.datcollate")} ELSE false END
    FROM pg_database d WHERE datname = current_database())"""  # noqa: S608
_COLUMNS: Final = f"""
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(e.typname, b.typname, t.typname)::text,
  coalesce(e.typtype, b.typtype, t.typtype) = 'e', e.oid IS NOT NULL,
  CASE WHEN a.attcollation = 0 THEN true WHEN c.collprovider = 'd' THEN {_DATABASE}
    WHEN c.collprovider = 'c' THEN {_BY_BYTES.format("c.collcollate")} ELSE c.collprovider = 'b' END,
  coalesce(a.attnum = ANY (i.indkey), false),
  (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = a.attrelid)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype
LEFT JOIN pg_type e ON e.oid = coalesce(b.typelem, t.typelem) AND coalesce(b.typcategory, t.typcategory) = 'A'
LEFT JOIN pg_collation c ON c.oid = a.attcollation
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""  # noqa: S608
ORDERS_BY_BYTES: Final = f"SELECT {_DATABASE}"
_ABSENT: Final = "remove it from the model, or give it its new name, and rebuild the group"


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source; ``declared`` is its type as SQL writes it."""

    declared: str
    kind: SourceType
    orders_by_bytes: bool
    in_key: bool


@dataclass(frozen=True)
class SourceTable:
    """A table of the source as its catalogue has it; ``estimate`` is the planner's number of rows."""

    name: TableName
    columns: Mapping[str, SourceColumn]
    estimate: int

    @property
    def key(self) -> frozenset[str]:
        """The columns of the primary key."""
        return frozenset(name for name, column in self.columns.items() if column.in_key)


@dataclass(frozen=True)
class Comparable:
    """What of a table is compared: the canonical text of each column in the source, and why others have none.

    ``faults`` are differences of the two tables themselves, ``why_not`` says why no row can be compared.
    """

    columns: Mapping[str, str]
    not_compared: Mapping[str, str]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    why_not: str | None = None


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection for canonical texts: of its own, since its session's settings stay with it."""
    with typed_errors(engine), engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.detach()
        for setting in SESSION:
            connection.exec_driver_sql(setting)
        yield connection


def source_table(connection: Connection, name: TableName) -> SourceTable:
    """Read a table from the catalogue; SourceNotReady where there is none."""
    rows = connection.exec_driver_sql(_COLUMNS, (name.quoted,)).all()
    if not rows:
        raise SourceNotReady(
            f"table {name} does not exist in the source",
            remedy="create it, or take it from the connector's tables and apply",
            place=str(name),
        )
    columns = {row[0]: SourceColumn(row[1], SourceType(row[2], row[3], row[4]), bool(row[5]), row[6]) for row in rows}
    return SourceTable(name, columns, rows[0][7])


def comparable(table: SourceTable, state: CapturedModel) -> Comparable:
    """Hold the columns of a table against those of a state, or of a model alone."""
    columns: dict[str, str] = {}
    not_compared: dict[str, str] = {}
    known = {name: state.fields.get(name, name) for name in state.forms}
    present = {name: table.columns[field] for name, field in known.items() if field in table.columns}
    for name, column in present.items():
        form = state.forms[name]
        if "%" in known[name]:  # which the driver takes for a placeholder
            not_compared[name] = f"named with a percent sign in the source: {known[name]}"
            continue
        text = source_text(form, column.kind, f"t.{quoted(known[name])}")
        if text is None or (form.kind == "interval" and state.encoding != "json"):
            not_compared[name] = f"{column.declared} in the source, {form.kind} in the state"
        else:
            columns[name] = text
    return Comparable(columns, not_compared, *unmatched(known, table.columns), _why_not(table, state, columns))


def unmatched(known: Mapping[str, str], there: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the faults of columns that the source lacks, and notes on those that the model does not declare."""
    faults = (f"column {field} is not in the source; {_ABSENT}" for field in known.values() if field not in there)
    undeclared = (field for field in there if field not in known.values())
    return tuple(faults), tuple(f"column {field} of the source is not declared in the model" for field in undeclared)


def _why_not(table: SourceTable, state: CapturedModel, columns: Mapping[str, str]) -> str | None:
    key = [state.fields.get(name, name) for name in state.key]
    if table.key != frozenset(key):
        ours, theirs = ", ".join(key), ", ".join(sorted(table.key)) or "nothing"
        return f"the model's key is {ours}, and the source's primary key is {theirs}"
    for name, column in zip(state.key, key, strict=True):
        if name not in columns or state.forms[name].kind not in RANGED:
            return f"key column {column} is {table.columns[column].declared}, which has no one order in both databases"
    return None


def source_rows(connection: Connection, table: SourceTable, state: StateTable, columns: Mapping[str, str]) -> Rows:
    """The rows of the source, by the key of the state."""
    key = _key(table, state, "t.")
    return Rows(connection, f"{table.name.quoted} AS t", key, columns, estimate=table.estimate)


def _key(table: SourceTable, state: StateTable, prefix: str) -> tuple[KeyColumn, ...]:
    fields = {name: state.fields.get(name, name) for name in state.key}
    return tuple(_key_column(f, table.columns[f], state.forms[name], prefix) for name, f in fields.items())


def _key_column(name: str, column: SourceColumn, form: ColumnForm, prefix: str) -> KeyColumn:
    sql = f"{prefix}{quoted(name)}"
    plain = column.kind.name in ("text", "varchar") and column.orders_by_bytes
    text = source_text(form, column.kind, sql) or sql
    return key_column(form, sql, text=text, cast=column.declared, orders_by_bytes=plain)


def condition(connection: Connection, table: SourceTable, state: StateTable, ranges: Sequence[tuple[Key, Key]]) -> str:
    """Write the condition of rows whose keys are in some ranges, both ends included; the source quotes the values."""
    key = _key(table, state, "")
    orders = ", ".join(column.order for column in key)
    values = [part for pair in ranges for end in pair for part in end]
    asked = "SELECT quote_literal(v) FROM unnest(CAST(%s AS text[])) WITH ORDINALITY AS i(v, n) ORDER BY n"
    literals = iter(connection.exec_driver_sql(asked, (values,)).scalars().all())

    def place() -> str:
        return ", ".join(column.value.format(next(literals)) for column in key)

    parts = []
    for first, last in ranges:
        low, high = place(), place()
        parts.append(f"({orders}) = ({low})" if first == last else f"({orders}) >= ({low}) AND ({orders}) <= ({high})")
    return " OR ".join(f"({part})" for part in parts)


def model_findings(
    connection: Connection, source: PostgresSource, models: Sequence[CapturedModel]
) -> Iterator[Finding]:
    """Look whether each captured table has the columns and the key of the models that are made from its topic."""
    for table in source.tables:
        for model in models:
            if model.topic == source.topic(table):
                yield from _of_model(connection, f"model {model.name} of {table}", table, model)


def _of_model(connection: Connection, check: str, table: str, model: CapturedModel) -> Iterator[Finding]:
    try:
        compared = comparable(source_table(connection, TableName.parse(table, place="tables")), model)
    except SourceNotReady as missing:
        yield Finding.error(check, missing.message, missing.remedy)
    else:
        yield from _of_columns(check, compared)


def _of_columns(check: str, compared: Comparable) -> Iterator[Finding]:
    for fault in compared.faults:
        what, _, remedy = fault.partition("; ")
        yield Finding.error(check, what, remedy)
    if compared.why_not is not None:
        yield Finding.error(check, compared.why_not, "give the model the source's key and types, and rebuild the group")
    for column, types in compared.not_compared.items():
        remedy = "if the column's type has changed, change the model's and rebuild the group; comparisons leave it out"
        yield Finding.warning(check, f"column {column} is {types}", remedy)
    if not (compared.faults or compared.why_not or compared.not_compared):
        yield Finding.ok(check, "; ".join(compared.notes) or "it has the source's columns")
