"""Our own tables of view topics: the records that wait to be published, and which view's rows a topic holds.

They are stored with the runs, and belong to no generation: the records of the last one are published first.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB


@dataclass(frozen=True)
class OutboxTables:
    """``records`` in the order of ``seq``, a null value a tombstone; ``topics`` with the table each is equal to.

    ``ids`` tells a topic from another of its name, from before it is filled.
    """

    records: sa.Table
    topics: sa.Table
    ids: sa.Table


def _tables(prefix: str, schema: str | None) -> OutboxTables:
    metadata = sa.MetaData(schema=schema)
    records = sa.Table(
        f"{prefix}view_records",
        metadata,
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text),
        sa.Index(f"{prefix}view_records_by_group", "group_name", "seq"),
        sqlite_autoincrement=True,  # a deleted number is not used again
    )
    topics = sa.Table(
        f"{prefix}view_topics",
        metadata,
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("view", sa.Text, nullable=False),
        sa.Column("lost", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("rows_of", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
    )
    ids = sa.Table(
        f"{prefix}view_topic_ids",
        metadata,
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("topic_id", sa.Text, nullable=False),
    )
    return OutboxTables(records, topics, ids)


_IN_A_SCHEMA, _BY_NAME = _tables("", "factfold"), _tables("factfold_", None)


def outbox_tables(connection: sa.Connection) -> OutboxTables:
    """The tables as this database has them: in a schema of ours, where there are schemas."""
    return _IN_A_SCHEMA if connection.dialect.name == "postgresql" else _BY_NAME


def create_outbox_tables(connection: sa.Connection) -> None:
    """Create them unless they are there; the schema is."""
    tables = outbox_tables(connection)
    tables.records.metadata.create_all(connection, checkfirst=True)
