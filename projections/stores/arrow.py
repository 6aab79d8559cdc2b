"""Arrow in and out of a table of the store: the port, and SQLite's side of it, through Python's own sqlite3.

The same code runs on the driver and in workers. SQLite is not reached through ADBC: its driver carries a SQLite of its
own, and two copies of SQLite in one process drop each other's locks on a file they both have open (POSIX locks belong
to the process), which corrupts it.

There decimals, times and dates are text: the decimal with all digits of its scale, the time in UTC with six digits and
a Z.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from eventstore.delivery.source import masked_message
from projections.declaring.columns import ColumnType
from projections.errors import TableStoreUnavailable, UnsupportedValue

if TYPE_CHECKING:
    import pyarrow as pa  # loaded with the first rows: a look at a run needs none

LOCK_SECONDS = 30.0  # how long a writer waits for the one write lock
_ROWS = 20_000  # rows a transaction: some 50 ms of the write lock, which commands are waiting for meanwhile
# Arrow writes a decimal as Java does: with an exponent once the first of its digits stands beyond the sixth place.
_PLAIN_SCALE = 6
_FIRST_YEAR, _LAST_YEAR = 1, 9999  # four digits a year keep texts in the order of times


@dataclass(frozen=True)
class Part:
    """What one task writes in a load by many; whichever attempt of it comes first counts."""

    load: str
    number: int


class Target(Protocol):
    """One SQL table, reached from the driver and from executors alike: it travels to them pickled."""

    @property
    def relation(self) -> str:
        """The quoted name; its parts come from checked identifiers."""

    def append(self, data: pa.Table | pa.RecordBatchReader, *, part: Part | None = None) -> int:
        """Append Arrow rows and return how many; those of a part that is written already are left out."""

    def load(self) -> AbstractContextManager[str]:
        """Open a load by tasks for the length of the block, in which parts may name it; gives its name."""

    def fetch(self, columns: Mapping[str, ColumnType], *, order_by: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The rows in batches of ``arrow_schema``; texts are ordered by their bytes, nulls come first."""

    def extent(self) -> int:
        """The places that rows may have, in the unit of ``fetch_between``: what executors divide among them."""

    def fetch_between(self, columns: Mapping[str, ColumnType], low: int, high: int) -> Iterator[pa.RecordBatch]:
        """The rows at places from ``low`` inclusive to ``high`` exclusive, found without an index."""


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow form of rows on their way out of the store; decimals are text."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema([(name, text if c.kind == "decimal" else c.arrow()) for name, c in columns.items()])


@dataclass(frozen=True)
class SqliteTarget:
    """One table of a SQLite file."""

    path: str
    table: str

    @property
    def relation(self) -> str:
        """The quoted name; its parts come from checked identifiers."""
        return f'"{self.table}"'

    def append(self, data: pa.Table | pa.RecordBatchReader, *, part: Part | None = None) -> int:
        """Append Arrow rows, a short transaction a batch, and return how many.

        Of a ``part`` there is one attempt: a master that tries tasks again is refused.
        """
        import pyarrow as pa

        with session(self.path) as connection:
            batches = data.to_batches(_ROWS) if isinstance(data, pa.Table) else data
            return sum(self._insert(connection, batch) for batch in batches)

    def load(self) -> AbstractContextManager[str]:
        """A load needs no note: no task writes twice."""
        return nullcontext("")

    def _insert(self, connection: sqlite3.Connection, batch: pa.RecordBatch) -> int:
        names = ", ".join(f'"{name}"' for name in batch.schema.names)
        places = ", ".join("?" * batch.num_columns)
        columns = [_stored(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        values = list(zip(*columns, strict=True))  # before the lock is taken
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO {self.relation} ({names}) VALUES ({places})", values)  # noqa: S608
        connection.execute("COMMIT")
        return len(values)

    def fetch(self, columns: Mapping[str, ColumnType], *, order_by: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The rows in Arrow batches; texts are ordered by their bytes, decimals by their value, nulls come first."""
        order = f" ORDER BY {', '.join(_order(c, columns[c]) for c in order_by)}" if order_by else ""
        return self._fetch(f"{self._select(columns)}{order}", columns)

    def extent(self) -> int:
        """The highest rowid and one more."""
        with session(self.path) as connection:
            cursor = connection.execute(f"SELECT coalesce(max(rowid), 0) + 1 FROM {self.relation}")  # noqa: S608
            return int(cursor.fetchone()[0])

    def fetch_between(self, columns: Mapping[str, ColumnType], low: int, high: int) -> Iterator[pa.RecordBatch]:
        """The rows with some rowids."""
        return self._fetch(f"{self._select(columns)} WHERE rowid >= {low:d} AND rowid < {high:d}", columns)

    def _select(self, columns: Mapping[str, ColumnType]) -> str:
        names = ", ".join(f'"{name}"' for name in columns)
        return f"SELECT {names} FROM {self.relation}"  # noqa: S608

    def _fetch(self, query: str, columns: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(columns)
        with session(self.path) as connection:
            cursor = connection.execute(query)
            while rows := cursor.fetchmany(_ROWS):
                values = zip(*rows, strict=True)
                arrays = [_loaded(column, field.type) for column, field in zip(values, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def session(path: str) -> Iterator[sqlite3.Connection]:
    """A connection of its own in autocommit mode; what SQLite reports becomes a typed error."""
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)
        connection.execute("PRAGMA synchronous = NORMAL")
        yield connection
    except sqlite3.Error as error:
        raise unavailable(masked_message(error), path) from error
    finally:
        if connection is not None:
            connection.close()


def unavailable(cause: str, path: str) -> TableStoreUnavailable:
    """The error of a database that does not do what it should."""
    return TableStoreUnavailable(
        f"the views' database failed: {cause[:300]}",
        remedy="check the file, its folder, the disk and the file's lock. The run goes on where it stopped",
        place=path,
    )


def _order(name: str, column: ColumnType) -> str:
    if column.kind != "decimal":
        return f'"{name}"'
    # All texts have the scale's digits: the longer number is the greater, below zero the smaller.
    negative = f"\"{name}\" LIKE '-%'"
    signed_length = f'CASE WHEN {negative} THEN -length("{name}") ELSE length("{name}") END'
    return (
        f'"{name}" IS NOT NULL, {negative} DESC, {signed_length}, CASE WHEN {negative} THEN "{name}" END DESC, "{name}"'
    )


def _stored(name: str, column: pa.Array) -> Iterable[Any]:
    """Values as sqlite3 binds them; raises UnsupportedValue for what SQLite would change without a word."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        _require_four_digit_years(name, column)
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        raise _unsupported(name, "not a number (NaN), which SQLite would store as null")
    return list(column.to_pylist())


def _decimals(column: pa.Array) -> Iterable[str | None]:
    import pyarrow as pa

    if column.type.scale <= _PLAIN_SCALE:
        return list(column.cast(pa.string()).to_pylist())
    return [None if value is None else f"{value:f}" for value in column.to_pylist()]


def _require_four_digit_years(name: str, column: pa.Array) -> None:
    import pyarrow.compute as pc

    years = pc.min_max(pc.year(column))
    low, high = years["min"].as_py(), years["max"].as_py()
    if low is not None and (low < _FIRST_YEAR or high > _LAST_YEAR):
        raise _unsupported(name, f"a time in the year {low if low < _FIRST_YEAR else high}")


def _unsupported(name: str, what: str) -> UnsupportedValue:
    return UnsupportedValue(
        f"column {name!r} has {what}",
        remedy="correct the value or leave the column out. PostgreSQL as the table store holds it",
        place=f"column {name}",
    )


def _loaded(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
