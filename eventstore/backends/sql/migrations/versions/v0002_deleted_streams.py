"""An event of a deleted stream is a row without a payload: Debezium makes a record without a value of it.

The place that the event had stays, since a topic may still end with it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.values import needed, optional

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Let payloads be null; PostgreSQL changes its catalogue only, SQLite copies the table."""
    op.create_table(
        "deleted_events",
        sa.Column("id", sa.Uuid, primary_key=True),
        *needed(sa.BigInteger, "order_xid", "position"),
    )
    if op.get_context().dialect.name == "postgresql":
        op.alter_column("events", "payload", nullable=True)
        return
    # Written out, since a dry run has no table to look at, and AUTOINCREMENT cannot be seen in one.
    op.execute("ALTER TABLE events RENAME TO events_before_0002")
    for index in ("events_order", "events_category_order"):
        op.execute(f"DROP INDEX {index}")
    op.create_table("events", *_columns(), sqlite_autoincrement=True)
    op.execute(f"INSERT INTO events ({_NAMES}) SELECT {_NAMES} FROM events_before_0002 ORDER BY position")  # noqa: S608
    op.execute("DROP TABLE events_before_0002")
    op.create_index("events_order", "events", ["order_xid", "position"])
    op.create_index("events_category_order", "events", ["category", "order_xid", "position"])


_NAMES = (
    "position, id, stream, version, category, type, schema_id, payload, message_key, partition, topic, ce_source, "
    "time, ce_time, correlation_id, causation_id, traceparent, order_xid"
)


def _columns() -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        *needed(sa.Text, "category", "type"),
        sa.Column("schema_id", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("message_key", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        *needed(sa.Text, "topic", "ce_source"),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ce_time", sa.Text, nullable=False),
        *optional(sa.Text, "correlation_id", "causation_id", "traceparent"),
        sa.Column("order_xid", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("id", name="events_id_key"),
        sa.UniqueConstraint("stream", "version", name="events_stream_version_key"),
    ]
