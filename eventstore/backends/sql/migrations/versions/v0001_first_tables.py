"""The tables as they were when migrations began. A store from before has them: what it lacks is added."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.values import needed, optional

revision = "0001"
down_revision = None

_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create events, schemas, categories and snapshots, each where it is missing."""
    _events()
    _schemas()
    op.create_table(
        "categories",
        sa.Column("category", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, nullable=False),
        *needed(sa.Integer, "partitions", "generation"),
        if_not_exists=True,
    )
    op.create_table(
        "snapshots",
        sa.Column("stream", sa.Text, primary_key=True),
        *needed(sa.Integer, "version", "shape"),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )


def event_columns(*, without_payload: bool) -> list[sa.Column[Any]]:
    """Return the columns of the table `events`, for migrations."""
    return [
        sa.Column("position", _POSITION, sa.Identity(), primary_key=True),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        *needed(sa.Text, "category", "type"),
        sa.Column("schema_id", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=without_payload),
        *_record_columns(),
        sa.Column("order_xid", sa.BigInteger, nullable=False),
    ]


def event_keys() -> tuple[sa.UniqueConstraint, sa.UniqueConstraint]:
    """Return the constraints of the table `events`, for migrations."""
    return (
        sa.UniqueConstraint("id", name="events_id_key"),
        sa.UniqueConstraint("stream", "version", name="events_stream_version_key"),
    )


def _events() -> None:
    columns = (*event_columns(without_payload=False), *event_keys())
    op.create_table("events", *columns, sqlite_autoincrement=True, if_not_exists=True)
    op.create_index("events_order", "events", ["order_xid", "position"], if_not_exists=True)
    op.create_index("events_category_order", "events", ["category", "order_xid", "position"], if_not_exists=True)


def _schemas() -> None:
    op.create_table(
        "schemas",
        sa.Column("schema_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        *_record_columns(),
        sa.Column("stream", sa.Text),
        sa.Column("version", sa.Integer),
        sa.Column("position", sa.BigInteger),
        sa.UniqueConstraint("id", name="schemas_id_key"),
        if_not_exists=True,
    )


def _record_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("message_key", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        *needed(sa.Text, "topic", "ce_source"),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ce_time", sa.Text, nullable=False),
        *optional(sa.Text, "correlation_id", "causation_id", "traceparent"),
    ]
