"""What the databases of the table store spell differently: types, names of a generation's tables.

Asked by what a database can do. SQLite has one name space, no unlogged tables, no exact numbers and no times: there, a
generation's name and a ``$`` stand before a table's (no identifier of ours holds one), decimals and times are text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.stores.keys import Key
from projections.stores.loads import close_loads

_TYPES: Mapping[str, sa.types.TypeEngine[Any]] = {
    "string": sa.Text(), "int": sa.Integer(), "long": sa.BigInteger(), "double": sa.Double(), "boolean": sa.Boolean(),
    "timestamp": sa.DateTime(timezone=True), "date": sa.Date(), "binary": sa.LargeBinary(),
}  # fmt: skip
_TEXT_IN_SQLITE = ("decimal", "timestamp", "date")
_SMALL_BYTES = 1 << 19
_SIZES = sa.text("SELECT r, pg_relation_size(CAST(r AS regclass)) FROM unnest(CAST(:relations AS text[])) AS r")


@dataclass(frozen=True)
class Dialect:
    """The abilities of a database that the layout of a generation depends on."""

    has_schemas: bool
    has_unlogged_tables: bool
    has_exact_types: bool
    indexes_nulls: bool

    def column_type(self, column: ColumnType) -> sa.types.TypeEngine[Any]:
        """The SQL type that holds a column."""
        if not self.has_exact_types and column.kind in _TEXT_IN_SQLITE:
            return sa.Text()
        return sa.Numeric(column.precision, column.scale) if column.kind == "decimal" else _TYPES[column.kind]

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


POSTGRES = Dialect(has_schemas=True, has_unlogged_tables=True, has_exact_types=True, indexes_nulls=False)
SQLITE = Dialect(has_schemas=False, has_unlogged_tables=False, has_exact_types=False, indexes_nulls=True)


def empty(connection: sa.Connection, tables: list[sa.Table]) -> None:
    """Empty tables at once, whatever they hold; tasks that still write into them are too late from now on."""
    if connection.dialect.name == "postgresql":
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
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET LOCAL enable_seqscan = off"))


def counted(connection: sa.Connection, statement: sa.Insert) -> int:
    """Run an INSERT and return how many rows it wrote; SQLAlchemy forgets unless it is asked to keep the number."""
    rows = connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
    # Python's sqlite3 does not count for a statement that begins with WITH.
    return rows if rows >= 0 else int(connection.scalar(sa.select(sa.func.changes())) or 0)
