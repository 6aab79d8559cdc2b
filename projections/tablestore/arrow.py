"""Arrow in and out of PostgreSQL by binary COPY, through ADBC; the same code runs on the driver and in executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from projections.columns import ColumnType
from projections.errors import TableStoreUnavailable


@dataclass(frozen=True)
class Target:
    """One SQL table; ``uri`` is libpq's and carries the password, so it is never printed."""

    uri: str
    schema: str
    table: str

    def __repr__(self) -> str:
        return f"Target({self.relation})"

    @property
    def relation(self) -> str:
        """The quoted name; both parts come from checked identifiers."""
        return f'"{self.schema}"."{self.table}"'


@contextmanager
def _session(uri: str) -> Iterator[tuple[adbc.Connection, adbc.Cursor]]:
    """A connection of its own and a cursor; what the driver reports becomes a typed error without the URI."""
    try:
        with adbc.connect(uri) as connection, connection.cursor() as cursor:
            yield connection, cursor
    except (adbc.OperationalError, adbc.InternalError, adbc.ProgrammingError) as error:
        raise TableStoreUnavailable(
            f"the views' database failed: {str(error).splitlines()[0][:300]}",
            remedy="check that it runs; the run goes on where it stopped",
        ) from error


def append(target: Target, data: pa.Table | pa.RecordBatchReader, *, task: int | None = None) -> None:
    """Append Arrow rows in one transaction; with ``task``, rows that an earlier attempt of the task wrote go first."""
    with _session(target.uri) as (connection, cursor):
        if task is not None:
            cursor.execute(f"DELETE FROM {target.relation} WHERE _task = {task:d}")  # noqa: S608
        cursor.adbc_ingest(target.table, data, mode="append", db_schema_name=target.schema)
        connection.commit()


def select(target: Target, columns: Mapping[str, ColumnType], *, order_by: str | None = None) -> str:
    """The query of the given columns; numeric is read as text, which is the form ADBC gives it."""
    names = ", ".join(f'"{c}"::text' if t.kind == "decimal" else f'"{c}"' for c, t in columns.items())
    order = f' ORDER BY "{order_by}" COLLATE "C"' if order_by and columns[order_by].kind == "string" else ""
    order = order or (f' ORDER BY "{order_by}"' if order_by else "")
    return f"SELECT {names} FROM {target.relation}{order}"  # noqa: S608


def fetch(uri: str, query: str, columns: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
    """The rows of a query made by ``select``, in Arrow batches of ``arrow_schema``."""
    schema = arrow_schema(columns)
    with _session(uri) as (_, cursor):
        cursor.execute(query)
        for batch in cursor.fetch_record_batch():
            yield batch.rename_columns(schema.names).cast(schema)


def pages(target: Target) -> int:
    """How many pages a table has: what executors divide among them."""
    with _session(target.uri) as (_, cursor):
        cursor.execute(f"SELECT pg_relation_size('{target.relation}') / current_setting('block_size')::bigint")
        return int(cursor.fetchone()[0])


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow form of rows on their way out of PostgreSQL; decimals are text."""
    text = pa.string()
    return pa.schema([(name, text if c.kind == "decimal" else c.arrow()) for name, c in columns.items()])
