"""Our own tables of view topics: the records that wait to be published, and which view's rows a topic holds.

They are stored with the runs, and belong to no generation: the records of the last one are published first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from projections.declaring.columns import ColumnType, Kind


@dataclass(frozen=True)
class OutboxTables:
    """``records`` in the order of ``seq``, a null value a tombstone; ``topics`` with the table each is equal to.

    ``ids`` tells a topic from another of its name, from before it is filled.
    """

    records: sa.Table
    topics: sa.Table
    ids: sa.Table


def said_columns(columns: Mapping[str, ColumnType]) -> list[list[Any]]:
    """The form in which ``rows_of`` has the columns of its table."""
    return [[name, *_said(kind)] for name, kind in columns.items()]


def columns_of(said: Sequence[Sequence[Any]]) -> Mapping[str, ColumnType]:
    """The columns that were stored in that form."""
    return {name: _column(*one) for name, *one in said}


def _said(kind: ColumnType) -> list[Any]:
    """The stored form of topics of flat views since the first release: their rows are recognized by it."""
    return [kind.kind, kind.precision, kind.scale, *([kind.shape] if kind.shape else [])]


def _column(kind: Kind, precision: int, scale: int, shape: str = "") -> ColumnType:
    return ColumnType(kind, precision, scale, shape=shape)


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
