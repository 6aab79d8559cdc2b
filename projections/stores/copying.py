"""Arrow in and out of PostgreSQL by binary COPY, through ADBC; the same code runs on the driver and in executors."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final, cast

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import QueuePool

from eventstore.delivery.source import masked_message, without_quoted
from projections.declaring.columns import ColumnType
from projections.errors import ProjectionError, TableStoreUnavailable, unsupported_value
from projections.stores.arrow import Part, arrow_schema
from projections.stores.loads import LOADS, PARTS
from projections.stores.runs import Run, superseded

# What holds a table or a run for longer is no batch of ours; and no signal ends a wait inside the driver.
_LOCK_SECONDS: Final = 60
_COLUMN: Final = re.compile(r"(?<=^CONTEXT:)  COPY [^\n]{1,80}?, line \d+, column [^\n:]{1,63}", re.M)
_TOKEN: Final = "SELECT token FROM factfold.runs WHERE group_name = $1 AND generation = $2 FOR SHARE"  # noqa: S105


@dataclass(frozen=True)
class PostgresTarget:
    """One SQL table; ``uri`` is libpq's and carries the password, so it is never printed.

    Of a ``run``'s tables only its holder writes them: another one may have claimed it since we looked.
    """

    uri: str
    schema: str
    table: str
    run: Run | None = None

    def __repr__(self) -> str:
        return f"PostgresTarget({self.relation})"

    @property
    def relation(self) -> str:
        """The quoted name; both parts come from checked identifiers."""
        return f'"{self.schema}"."{self.table}"'

    def append(self, data: pa.Table | pa.RecordBatchReader, *, part: Part | None = None) -> int:
        """Append Arrow rows in one transaction and return how many; those of a part that is written are left out.

        Raises ProjectionError if no load waits for the part any more, or another runner holds the run.
        """
        with _session(self.uri) as (connection, cursor):
            if self.run is not None:
                _require_token(cursor, self.run)
            rows = int(cursor.adbc_ingest(self.table, data, mode="append", db_schema_name=self.schema))
            if part is None or _is_first(cursor, part, rows):
                connection.commit()
                return rows
            connection.rollback()
            return _rows_of(cursor, part)

    @contextmanager
    def load(self) -> Iterator[str]:
        """Open a load by tasks; closed at the end, it takes no more of their rows."""
        load = uuid.uuid4().hex
        with _session(self.uri) as (connection, cursor):
            cursor.execute(f"INSERT INTO {LOADS} VALUES ($1, $2)", (load, self.relation))  # noqa: S608
            connection.commit()
        try:
            yield load
        finally:
            with _session(self.uri) as (connection, cursor):
                cursor.execute(f"DELETE FROM {LOADS} WHERE load = $1", (load,))  # noqa: S608
                connection.commit()

    def fetch(self, columns: Mapping[str, ColumnType], *, order_by: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The rows in Arrow batches; numeric is read as text, which is the form ADBC gives it."""
        order = f" ORDER BY {', '.join(self._order(c, columns[c]) for c in order_by)}" if order_by else ""
        return self._fetch(f"{self._select(columns)}{order}", columns)

    def _order(self, name: str, column: ColumnType) -> str:
        """By the table's column: its bare name would mean the selected text of a decimal."""
        collation = ' COLLATE "C"' if column.kind == "string" else ""
        return f'{self.relation}."{name}"{collation} NULLS FIRST'

    def extent(self) -> int:
        """How many pages the table has."""
        with _session(self.uri) as (_, cursor):
            cursor.execute(f"SELECT pg_relation_size('{self.relation}') / current_setting('block_size')::bigint")
            return int(cursor.fetchone()[0])

    def fetch_between(self, columns: Mapping[str, ColumnType], low: int, high: int) -> Iterator[pa.RecordBatch]:
        """The rows of some pages: ranges of ctid are scanned without an index."""
        pages = f"ctid >= '({low:d},0)'::tid AND ctid < '({high:d},0)'::tid"
        return self._fetch(f"{self._select(columns)} WHERE {pages}", columns)

    def _select(self, columns: Mapping[str, ColumnType]) -> str:
        names = ", ".join(f'"{c}"::text' if t.kind == "decimal" else f'"{c}"' for c, t in columns.items())
        return f"SELECT {names} FROM {self.relation}"  # noqa: S608

    def _fetch(self, query: str, columns: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(columns)
        with _session(self.uri) as (_, cursor):
            cursor.execute(query)
            for batch in cursor.fetch_record_batch():
                yield batch.rename_columns(schema.names).cast(schema)


def _require_token(cursor: adbc.Cursor, run: Run) -> None:
    """The run cannot be claimed before the transaction ends, as with `runs.require_token`."""
    cursor.execute(_TOKEN, (run.group, run.generation))
    row = cursor.fetchone()
    if row is None or row[0] != run.token:
        raise superseded(run)


def _is_first(cursor: adbc.Cursor, part: Part, rows: int) -> bool:
    """Note the part, unless another attempt has; one that is about to commit is waited for."""
    noted = f"INSERT INTO {PARTS} VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING part"  # noqa: S608
    try:
        cursor.execute(noted, (part.load, part.number, rows))
        return cursor.fetchone() is not None
    except adbc.IntegrityError as error:
        raise ProjectionError(
            f"part {part.number} of a load comes after its end",
            remedy="none is needed: the process that started the load has ended, or has started it again",
            code="load-closed",
        ) from error


def _rows_of(cursor: adbc.Cursor, part: Part) -> int:
    cursor.execute(f"SELECT rows FROM {PARTS} WHERE load = $1 AND part = $2", (part.load, part.number))  # noqa: S608
    return int(cursor.fetchone()[0])


@functools.cache
def _pool(uri: str) -> QueuePool:
    """The process's connections to a database: a new one first reads all of its types, which takes 0.1 s."""
    pool = QueuePool(lambda: _connect(uri), pool_size=4, max_overflow=-1)
    event.listen(pool, "checkout", _require_alive)
    return pool


def _connect(uri: str) -> adbc.Connection:
    """A connection that waits for locks, but not for good."""
    connection = adbc.connect(uri)
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
    connection.commit()
    return connection


def disconnect(uri: str) -> None:
    """Close this process's idle connections to a database."""
    _pool(uri).dispose()


def _require_alive(connection: adbc.Connection, record: object, proxy: object) -> None:
    """Let the pool replace a connection whose server has stopped since it was last used."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except adbc.Error as error:
        raise DisconnectionError(str(error)) from error


@contextmanager
def _session(uri: str) -> Iterator[tuple[adbc.Connection, adbc.Cursor]]:
    """A connection for one use and a cursor; what the driver reports becomes a typed error without the URI."""
    try:
        with closing(_pool(uri).connect()) as held:
            connection = cast("adbc.Connection", held.dbapi_connection)
            with connection.cursor() as cursor:
                yield connection, cursor
    except adbc.DataError as error:
        raise unsupported_value(f"the views' database cannot hold a value: {_server_message(error)}") from error
    except (adbc.OperationalError, adbc.InternalError, adbc.ProgrammingError) as error:
        raise TableStoreUnavailable(
            f"the views' database failed: {_server_message(error)}",
            remedy="check that it runs. The run goes on where it stopped",
        ) from error


def _server_message(error: adbc.Error) -> str:
    """What the server said, and of which column, without the value."""
    column, said = _COLUMN.search(str(error)), masked_message(error).partition("\n")[0]
    if isinstance(error, adbc.DataError):
        said = without_quoted(said)  # the driver does not always give the code that says that it quotes a value
    return f"{said[:300]} {column[0].strip() if column else ''}".strip()
