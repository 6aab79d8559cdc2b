"""Tables beside an event store on SQLite: changes of ordinary rows, as records, and whose changes they are.

`cdc.capture` fills them by triggers. On PostgreSQL there are none: Debezium reads the changes from the log.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Connection, Index, Integer, MetaData, Table, Text

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
