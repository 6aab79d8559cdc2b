"""Captured tables of a SQLite file, compared with the states in the same file, and repaired by their changelog.

    with ComparedGroup("sqlite:///shop.db", shop_views) as group:
        for table in compare_embedded(group.tables):
            print(table.table, table.equal)

Both are read in one transaction, which holds up no writer; a key with a change that the state has not applied yet is
looked at again. Rows are repaired by new change records, written as the table's own triggers write them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cdc.comparing.canonical import ColumnForm, Kind
from cdc.comparing.report import ComparisonProgress, Key, OnProgress, StateTable, TableComparison
from cdc.comparing.source_table import unmatched
from cdc.comparing.walk import PATIENCE, Settled, Walk
from cdc.embedded import dashed, delete_again, read_again
from cdc.errors import ConnectorTimeout, InvalidConnector, SourceNotReady
from cdc.identifiers import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LOOK_SECONDS: Final = 0.2
_PENDING: Final = "SELECT DISTINCT message_key FROM factfold_changes WHERE topic = ? AND position >= ?"


def compare_embedded(
    states: Sequence[StateTable],
    *,
    tables: Collection[str] | None = None,
    patience: float = PATIENCE,
    repair: bool = False,
    on_progress: OnProgress = lambda progress: None,
) -> tuple[TableComparison, ...]:
    """Compare the captured tables of a SQLite file with the states that are made from them.

    Args:
        states: The states.
        tables: The tables to compare, by default all.
        patience: Seconds to wait for a runner to catch up.
        repair: Write differing rows to the changelog again.
        on_progress: Is called as the comparison goes on.

    Raises:
        InvalidConnector: A table is not captured.
        SourceNotReady: A captured table is missing.
        ConnectorTimeout: Changes are not applied in time.

    Examples:
        >>> with ComparedGroup("sqlite:///desk.db", desk) as states:
        ...     comparisons = compare_embedded(states.tables, repair=True)
        >>> sum(comparison.repaired for comparison in comparisons)
        0
    """
    comparisons = []
    for state in states:
        with _reading(state) as connection:
            table = _table_of(connection, state)
        if tables is None or table in tables:
            on_progress(ComparisonProgress(table, "comparing", 0, 0))
            comparisons.append(_compared(state, table, patience=patience, repair=repair, tell=on_progress))
    missing = set(tables or ()) - {one.table for one in comparisons}
    if missing:
        raise InvalidConnector(
            f"table {sorted(missing)[0]!r} is captured under no topic that the groups read",
            remedy=f"name one of {', '.join(sorted(one.table for one in comparisons)) or 'those that are captured'}",
        )
    return tuple(comparisons)


@dataclasses.dataclass(frozen=True)
class _File(Walk):
    """A table and a state in one file, with the texts of the columns that can be compared, on both sides."""

    texts: Mapping[str, tuple[str, str]]
    patience: float

    def settle(self, suspects: Sequence[Key]) -> Settled:
        """Look again, at the keys whose changes were on their way, until they are applied; ConnectorTimeout.

        One query sees all rows: the suspects are among them.
        """
        until, (settled, pending) = time.monotonic() + self.patience, self._look()
        while pending:
            if time.monotonic() > until:
                raise self._behind()
            time.sleep(_LOOK_SECONDS)
            again, still = self._look()
            settled.missing += pending.intersection(again.missing)
            settled.extra += pending.intersection(again.extra)
            settled.differing += pending.intersection(again.differing)
            pending &= still
        return settled

    def _look(self) -> tuple[Settled, set[Key]]:
        """Return the keys that differ and have no change on its way, and those that have."""
        # Asked for first: what the state has applied since only seems to be on its way.
        progress = self.state.progress().get(0, 0)
        ours, theirs = self._selects()
        keys = ", ".join(f"k{n}" for n in range(len(self.state.key)))
        with _reading(self.state) as connection:
            one, other = (
                {tuple(row) for row in connection.exec_driver_sql(f"SELECT {keys} FROM ({a} EXCEPT {b})")}  # noqa: S608
                for a, b in ((ours, theirs), (theirs, ours))
            )
            pending = self._pending(connection, progress) & (one | other)
            rows, stored = (
                int(connection.exec_driver_sql(f"SELECT count(*) FROM ({each})").scalar_one())  # noqa: S608
                for each in (ours, theirs)
            )
        missing, extra, differing = (list(kind - pending) for kind in (one - other, other - one, one & other))
        return Settled(missing, extra, differing, source_rows=rows, state_rows=stored), pending

    def _pending(self, connection: Connection, progress: int) -> set[Key]:
        keys = connection.exec_driver_sql(_PENDING, (self.state.topic, progress)).scalars()
        return {self.state.decode_key(key.encode(), self.state.topic) for key in keys}

    def _selects(self) -> tuple[str, str]:
        """The rows of both sides as texts, the key first."""
        sides = []
        for side, relation in ((0, quoted(self.table)), (1, f"{self.state.relation} WHERE NOT _deleted")):
            key = [f"{self.texts[name][side]} AS k{n}" for n, name in enumerate(self.state.key)]
            rest = [f"{texts[side]} AS c{n}" for n, texts in enumerate(self.texts.values())]
            sides.append(f"SELECT {', '.join([*key, *rest])} FROM {relation}")  # noqa: S608
        return sides[0], sides[1]

    def repair(self, settled: Settled) -> str | None:
        """Write new change records."""
        texts = [self.texts[name][0] for name in self.state.key]
        with self.state.writing() as connection:
            if again := {*settled.missing, *settled.differing}:
                read_again(connection, self.table, where=f"({', '.join(texts)}) IN ({_listed(texts)})", values=again)
            delete_again(connection, self.table, self.state.topic, self._message_keys(connection, settled.extra))
        return None

    def _message_keys(self, connection: Connection, keys: Collection[Key]) -> list[str]:
        if not keys:
            return []
        query = "SELECT DISTINCT message_key FROM factfold_changes WHERE topic = ?"
        known = connection.exec_driver_sql(query, (self.state.topic,)).scalars().all()
        return [key for key in known if self.state.decode_key(key.encode(), self.state.topic) in keys]

    def columns(self, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]:
        """Hold the texts of each row against each other."""
        ours, theirs = self._selects()
        same = " AND ".join(f"a.k{n} = b.k{n} AND a.k{n} = ?" for n in range(len(self.state.key)))
        differ = ", ".join(f"a.c{n} IS NOT b.c{n}" for n in range(len(self.texts)))
        query = f"SELECT {differ} FROM ({ours}) a JOIN ({theirs}) b ON {same}"  # noqa: S608
        with _reading(self.state) as connection:
            rows = [(key, row) for key in keys for row in connection.exec_driver_sql(query, key)]
        return {key: tuple(n for n, differs in zip(self.texts, row, strict=True) if differs) for key, row in rows}

    def _behind(self) -> ConnectorTimeout:
        return ConnectorTimeout(
            f"changes of table {self.table!r} were not applied in {self.patience:g} s",
            remedy="let the group's runner run (factfold projections run), or wait longer: --timeout",
            place=self.state.place,
            code="state-behind",
        )


def _compared(state: StateTable, table: str, *, patience: float, repair: bool, tell: OnProgress) -> TableComparison:
    """Compare, repair what differs, and compare again."""
    with _reading(state) as connection:
        there = _columns(connection, table)
    known = {name: state.fields.get(name, name) for name in state.forms}
    present = {name: form for name, form in state.forms.items() if known[name] in there}
    texts = {
        name: (text, state_text(form, quoted(name)))
        for name, form in present.items()
        if (text := source_text(form, quoted(known[name]))) is not None
    }
    faults, notes = unmatched(known, there)
    kinds = {name: form.kind for name, form in present.items() if name not in texts}
    left_out = {name: f"{kind} has no common form in SQLite" for name, kind in kinds.items()}
    report = TableComparison(table, state.name, state.key, chunks=1, faults=faults, notes=notes, not_compared=left_out)
    if any(name not in texts for name in state.key):
        return dataclasses.replace(report, faults=(*faults, "a key column cannot be compared"))
    return _File(table, state, tell, texts, patience).compared(report, (), repairs=repair)


def _listed(texts: Sequence[str]) -> str:
    parts = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(texts)))
    return f"SELECT {parts} FROM json_each(?)"  # noqa: S608


@contextmanager
def _reading(state: StateTable) -> Iterator[Connection]:
    """One moment of the file."""
    with state.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        try:
            yield connection
        finally:
            connection.exec_driver_sql("ROLLBACK")


def _table_of(connection: Connection, state: StateTable) -> str:
    """The table that is captured under a state's topic; SourceNotReady."""
    query = "SELECT table_name FROM factfold_captures WHERE topic = ?"
    captures = connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'factfold_captures'").first()
    table: Any = captures and connection.exec_driver_sql(query, (state.topic,)).scalar()
    if not table:
        raise SourceNotReady(
            f"no table of the file is captured under topic {state.topic!r}",
            remedy="capture it in this file: cdc.capture_table(engine, model, topic=…)",
            place=state.place,
        )
    return str(table)


def _columns(connection: Connection, table: str) -> list[str]:
    columns = [row[0] for row in connection.exec_driver_sql("SELECT name FROM pragma_table_info(?)", (table,))]
    if not columns:
        raise SourceNotReady(
            f"table {table!r} does not exist, and is captured",
            remedy="create it and capture it again, or drop the group",
            place=table,
        )
    return columns


_TEXT: Final = "CAST({0} AS TEXT)"
_ZEROS: Final = "'000000'"


def _same(column: str, _: ColumnForm) -> str:
    return _TEXT.format(column)


def _double(column: str, _: ColumnForm) -> str:
    number = f"typeof({column}) IN ('real', 'integer')"
    return f"CASE WHEN {number} THEN printf('%!.17g', {column} + 0.0) ELSE {_TEXT.format(column)} END"


def _decimal(column: str, form: ColumnForm) -> str:
    """As the capture rounds it, and without the sign of a zero."""
    written, number = f"printf('%.{form.scale:d}f', {column})", f"typeof({column}) IN ('real', 'integer')"
    zero = f"-{0:.{form.scale}f}"
    plain = f"CASE {written} WHEN '{zero}' THEN substr({written}, 2) ELSE {written} END"
    return f"CASE WHEN {number} THEN {plain} ELSE {_TEXT.format(column)} END"


def _uuid(column: str, _: ColumnForm) -> str:
    return f"CASE WHEN length({column}) = 32 THEN {dashed(column)} ELSE {_TEXT.format(column)} END"


def _moment(column: str, _: ColumnForm) -> str:
    """In UTC, with six digits and a Z; a moment without an offset is UTC."""
    text = _TEXT.format(column)
    rest = f"substr({text}, 20)"
    offset = f"CASE WHEN substr({rest}, -1) IN ('Z', 'z') THEN 'Z' WHEN substr({rest}, -6, 1) IN ('+', '-') THEN"
    offset = f"{offset} substr({rest}, -6) ELSE '' END"
    digits = f"substr({rest}, 2, length({rest}) - length({offset}) - 1)"
    whole = f"strftime('%Y-%m-%d %H:%M:%S', substr({text}, 1, 19) || {offset})"
    written = f"{whole} || '.' || substr({digits} || {_ZEROS}, 1, 6) || 'Z'"
    return f"coalesce({written}, {text})"


def _time(column: str, _: ColumnForm) -> str:
    text = _TEXT.format(column)
    return f"substr({text}, 1, 8) || '.' || substr(substr({text}, 10) || {_ZEROS}, 1, 6)"


_SOURCE: Final[Mapping[Kind, Callable[[str, ColumnForm], str]]] = {
    **dict.fromkeys(("integer", "text", "boolean", "date"), _same),
    **dict.fromkeys(("moment", "local moment"), _moment),
    "double": _double,
    "decimal": _decimal,
    "uuid": _uuid,
    "time": _time,
}


def source_text(form: ColumnForm, column: str) -> str | None:
    """Return SQL of the text of a captured column; None for a form without one."""
    expression = _SOURCE.get(form.kind)
    return None if expression is None else expression(column, form)


def state_text(form: ColumnForm, column: str) -> str:
    """Return SQL of the text of a state's column."""
    return _double(column, form) if form.kind == "double" else _TEXT.format(column)
