"""Tables next to an event store on SQLite: changes of ordinary rows, as records, and the tables they belong to.

`cdc.capture_table` fills them by triggers. On PostgreSQL there are none: Debezium reads the changes from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Column, Connection, Engine, Index, Integer, MetaData, Table, Text
from sqlalchemy.exc import DBAPIError

from eventstore.backends.sql import failures, sqlite
from eventstore.shown_urls import shown_url

_METADATA: Final = MetaData()

CHANGES: Final = Table(
    "factfold_changes",
    _METADATA,
    Column("position", Integer, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("message_key", Text, nullable=False),
    Column("payload", Text),  # null is a tombstone
    Index("factfold_changes_topic", "topic", "position"),
    sqlite_autoincrement=True,
)
CAPTURES: Final = Table(
    "factfold_captures",
    _METADATA,
    Column("topic", Text, primary_key=True),
    Column("table_name", Text, nullable=False, unique=True),
)
# A row that is about to be written, and the row whose key equals it under a collation: the write may replace it.
RESPELLED: Final = Table(
    "factfold_respelled",
    _METADATA,
    Column("topic", Text, primary_key=True),
    Column("new_key", Text, primary_key=True),
    Column("old_key", Text, primary_key=True),
)


def create_change_tables(connection: Connection) -> None:
    """Create what is missing."""
    _METADATA.create_all(connection)


@contextmanager
def changing(engine: Engine) -> Iterator[Connection]:
    """A transaction that no writer can come between, with the tables of changes made; StoreUnavailable for a lock."""
    try:
        with engine.begin() as connection:
            # Python's driver begins a transaction before a change of rows, and not before one of tables.
            sqlite.end_begun(connection)
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            create_change_tables(connection)
            yield connection
    except DBAPIError as error:
        if reason := sqlite.refused(error):
            raise failures.refused(*reason, error, shown_url(engine.url)) from error
        raise
