"""What the databases of the table store spell differently: types, names of a generation's tables.

Asked by what a database can do. SQLite has one name space, no unlogged tables, no exact numbers and no times: there, a
generation's name and a ``$`` stand before a table's (no identifier of ours holds one), decimals and times are text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from projections.declaring.columns import ColumnType, Kind
from projections.stores.loads import close_loads

# Any value of the type will do: whether the column is null is compared separately.
_INSTEAD_OF_NULL: Final[Mapping[Kind, str]] = {
    "string": "''", "int": "0", "long": "0", "double": "0", "boolean": "false", "decimal": "0", "binary": "''",
    "date": "DATE '1970-01-01'", "timestamp": "TIMESTAMPTZ '1970-01-01 00:00:00Z'",
}  # fmt: skip
_TYPES: Mapping[str, sa.types.TypeEngine[Any]] = {
    "string": sa.Text(), "int": sa.Integer(), "long": sa.BigInteger(), "double": sa.Double(), "boolean": sa.Boolean(),
    "timestamp": sa.DateTime(timezone=True), "date": sa.Date(), "binary": sa.LargeBinary(),
}  # fmt: skip
_TEXT_IN_SQLITE = ("decimal", "timestamp", "date")
_SMALL_BYTES = 1 << 19
_SIZES = sa.text("SELECT r, pg_relation_size(CAST(r AS regclass)) FROM unnest(CAST(:relations AS text[])) AS r")
_LOOKED_UP, _JOINED = (
    sa.text(f"SET LOCAL enable_hashjoin = {on}; SET LOCAL enable_mergejoin = {on}") for on in ("off", "on")
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAR: Final = 1 << 62  # microseconds; what is as far from 1970 is compared as the end of all times
_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC) for year in (1, 9999))


@dataclass(frozen=True)
class Key:
    """The columns that tell rows apart; ``nullable``, where null is a value of its own among them.

    SQLite compares such values by ``IS``, with an index. PostgreSQL uses neither index nor hash table for ``IS NOT
    DISTINCT FROM``; it does for two equalities (``by_equality``): of the values, with another in the place of null, and
    of whether they are null. (SQLite 3.40 finds nothing by an index of such expressions where it should.)
    """

    columns: Mapping[str, ColumnType]
    nullable: bool = False
    by_equality: bool = True

    def same(self, left: sa.FromClause, right: sa.FromClause, named: Key | None = None) -> sa.ColumnElement[bool]:
        """Whether a row of one table has the key of a row of another, which may have it under other names."""
        pairs = zip(self.parts(left), (named or self).parts(right), strict=True)
        if self.nullable and not self.by_equality:
            return sa.and_(*(ours.is_not_distinct_from(theirs) for ours, theirs in pairs))
        return sa.and_(*(ours == theirs for ours, theirs in pairs))

    def parts(self, table: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        """What is compared, and therefore indexed."""
        if self.nullable and self.by_equality:
            return [part for name, column in self.columns.items() for part in _parts(table.c[name], column)]
        return self.of(table)

    def of(self, table: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        """The key's columns in a table."""
        return [table.c[name] for name in self.columns]

    def is_null(self, table: sa.FromClause) -> sa.ColumnElement[bool]:
        """Whether every part of a key that may be null is, or any of one that may not."""
        nulls = [table.c[name].is_(None) for name in self.columns]
        return sa.and_(*nulls) if self.nullable else sa.or_(*nulls)


def _parts(column: sa.ColumnElement[Any], kind: ColumnType) -> tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]:
    return sa.func.coalesce(column, sa.literal_column(_INSTEAD_OF_NULL[kind.kind])), column.is_(None)


@dataclass(frozen=True)
class Dialect:
    """What a database can do, and how it says what all can do.

    ``place`` is the column of where a row is, ``clock`` the query of its time in microseconds since 1970. ``by_index``
    is what lets a transaction find rows by their indexes, if it would not by itself, and ``parser`` its name in
    sqlglot.
    """

    has_schemas: bool
    has_unlogged_tables: bool
    has_exact_types: bool
    indexes_nulls: bool
    looks_up_arrays: bool
    place: str
    clock: str
    parser: str
    by_index: str | None = None

    def column_type(self, column: ColumnType) -> sa.types.TypeEngine[Any]:
        """The SQL type that holds a column."""
        if not self.has_exact_types and column.kind in _TEXT_IN_SQLITE:
            return sa.Text()
        return sa.Numeric(column.precision, column.scale) if column.kind == "decimal" else _TYPES[column.kind]

    def moment(self, micros: int) -> sa.ColumnElement[Any]:
        """A moment in microseconds since 1970, as a timestamp of this database."""
        at = moment_of(micros)
        if self.has_exact_types:
            return sa.literal(at, sa.DateTime(timezone=True))
        return sa.literal(at.strftime("%Y-%m-%d %H:%M:%S.%fZ").rjust(27, "0"), sa.Text)

    def moved(self, at: sa.ColumnElement[Any], kind: ColumnType, micros: int) -> sa.ColumnElement[Any]:
        """A time, or a number of microseconds, so much later, or earlier if below zero; perhaps some further seconds.

        What no timestamp holds is the end of all times.
        """
        end = self.end(kind, latest=micros > 0)
        if kind.kind == "long":
            return sa.case((at.between(-_FAR, _FAR), at + micros), else_=end)
        if self.has_exact_types:
            moved = at + sa.literal_column(f"INTERVAL '{micros} microseconds'")
            return sa.case((at.between(self.moment(-_FAR), self.moment(_FAR)), moved), else_=end)
        # Its times have milliseconds, and texts of whole seconds are before all of the same second.
        seconds = micros // 1_000_000 + (2 if micros > 0 else -1)
        return sa.func.coalesce(sa.func.strftime("%Y-%m-%d %H:%M:%S", at, f"{seconds} seconds"), end)

    def end(self, kind: ColumnType, *, latest: bool) -> sa.ColumnElement[Any]:
        """What no time is before, or after the ``latest``."""
        if kind.kind == "long":
            return sa.literal_column("9223372036854775807" if latest else "-9223372036854775807")
        if self.has_exact_types:
            return sa.literal_column(f"TIMESTAMPTZ '{'' if latest else '-'}infinity'")
        return sa.literal_column("'~'" if latest else "''")

    def name_space(self, generation: str) -> NameSpace:
        """Where the tables of a generation belong."""
        return NameSpace(self, generation, self._metadata(generation), self._metadata(generation))

    def _metadata(self, generation: str) -> sa.MetaData:
        return sa.MetaData(schema=generation if self.has_schemas else None)


@dataclass(frozen=True)
class NameSpace:
    """The tables of one generation; those ``apart`` are not made with it."""

    dialect: Dialect
    generation: str
    metadata: sa.MetaData
    others: sa.MetaData

    def key(self, columns: Mapping[str, ColumnType], *, nullable: bool) -> Key:
        """A key as this database compares it."""
        return Key(columns, nullable=nullable, by_equality=not self.dialect.indexes_nulls)

    def columns(self, columns: Mapping[str, ColumnType]) -> list[sa.Column[Any]]:
        """Columns of the types of this database."""
        return [sa.Column(name, self.dialect.column_type(column)) for name, column in columns.items()]

    def logged(self, name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
        """A table that outlives a crash."""
        return sa.Table(self._name(name), self.metadata, *columns)

    def unlogged(self, name: str, *columns: sa.Column[Any]) -> sa.Table:
        """A table that need not outlive a crash of the server."""
        return sa.Table(self._name(name), self.metadata, *columns, prefixes=self._prefixes())

    def apart(self, name: str, *columns: sa.Column[Any]) -> sa.Table:
        """A table that is made when it is needed, and need not outlive a crash either."""
        return sa.Table(self._name(name), self.others, *columns, prefixes=self._prefixes())

    def _name(self, name: str) -> str:
        return name if self.dialect.has_schemas else f"{self.generation}${name}"

    def _prefixes(self) -> list[str]:
        return ["UNLOGGED"] if self.dialect.has_unlogged_tables else []


POSTGRES = Dialect(
    has_schemas=True, has_unlogged_tables=True, has_exact_types=True, indexes_nulls=False, looks_up_arrays=True,
    place="ctid", parser="postgres",
    clock="SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", by_index="SET LOCAL enable_seqscan = off",
)  # fmt: skip
SQLITE = Dialect(
    has_schemas=False, has_unlogged_tables=False, has_exact_types=False, indexes_nulls=True, looks_up_arrays=False,
    place="_rowid_", parser="sqlite",
    # It has no clock of its own: it asks this machine's, to the millisecond.
    clock="SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000",
)  # fmt: skip
_DIALECTS: Final = {"postgresql": POSTGRES, "sqlite": SQLITE}


def dialect_of(connection: sa.Connection) -> Dialect:
    """The dialect of a database that has views."""
    return _DIALECTS[connection.dialect.name]


def moment_of(micros: int) -> datetime:
    """A moment in microseconds since 1970 as Python has it; the nearest that it has."""
    low, high = ((one - _EPOCH) // timedelta(microseconds=1) for one in (_EARLIEST, _LATEST))
    return _EPOCH + timedelta(microseconds=min(max(micros, low), high))


def now(connection: sa.Connection) -> int:
    """What the database's clock shows, in microseconds since 1970."""
    return int(connection.scalar(sa.text(dialect_of(connection).clock)) or 0)


def empty(connection: sa.Connection, tables: list[sa.Table]) -> None:
    """Empty tables at once, whatever they hold; tasks that still write into them are too late from now on."""
    if dialect_of(connection).has_schemas:
        quoted = connection.dialect.identifier_preparer.quote_identifier
        relations = [f"{quoted(str(table.schema))}.{quoted(table.name)}" for table in tables]
        connection.execute(sa.text(f"LOCK {', '.join(relations)}"))
        _empty_locked(connection, relations)
        close_loads(connection, relations)
    else:
        # Without a condition SQLite frees the pages of a table and looks at no row.
        for table in tables:
            connection.execute(sa.delete(table))


def _empty_locked(connection: sa.Connection, relations: list[str]) -> None:
    """TRUNCATE makes new files, a millisecond each: what has few pages loses its rows instead."""
    sizes = connection.execute(_SIZES, {"relations": relations})
    filled = {relation: size for relation, size in sizes if size}
    large = [relation for relation, size in filled.items() if size > _SMALL_BYTES]
    small = [f"DELETE FROM {relation}" for relation in filled.keys() - large]  # noqa: S608 - quoted names of ours
    if large:
        connection.execute(sa.text(f"TRUNCATE {', '.join(large)}"))
    if small:
        connection.execute(sa.text("; ".join(small)))


def find_by_index(connection: sa.Connection) -> None:
    """Let a batch's transaction find stored rows by their indexes: what it costs follows its changes, not the state.

    PostgreSQL does not know how few rows the working tables hold, and reads a whole state for a part of it.
    """
    if setting := dialect_of(connection).by_index:
        connection.execute(sa.text(setting))


@contextmanager
def looking_up(connection: sa.Connection) -> Iterator[None]:
    """Let PostgreSQL look rows up for each of a few others, of which it does not know how few they are."""
    if dialect_of(connection).by_index:
        connection.execute(_LOOKED_UP)
    yield
    if dialect_of(connection).by_index:
        connection.execute(_JOINED)


class InOrder(sa.Join):
    """A join that SQLite runs in its order; see `looking_up`."""

    inherit_cache = True


@compiles(InOrder, "sqlite")
def _in_order(join: InOrder, compiler: Any, **given: Any) -> str:
    sides = [compiler.process(side, **given) for side in (join.left, join.right)]
    return f"{' CROSS JOIN '.join(sides)} ON {compiler.process(join.onclause, **given)}"


def counted(connection: sa.Connection, statement: sa.Insert) -> int:
    """Run an INSERT and return how many rows it wrote; SQLAlchemy forgets unless it is asked to keep the number."""
    rows = connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
    # Python's sqlite3 does not count for a statement that begins with WITH.
    return rows if rows >= 0 else int(connection.scalar(sa.select(sa.func.changes())) or 0)
