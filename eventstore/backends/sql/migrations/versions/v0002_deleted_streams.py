"""An event of a deleted stream is a row without a payload: Debezium makes a record without a value of it.

The place that the event had stays, since a topic may still end with it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.migrations.versions.v0001_first_tables import event_columns, event_keys
from eventstore.backends.sql.values import needed

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
    columns = event_columns(without_payload=True)
    names = ", ".join(column.name for column in columns)
    op.create_table("events", *columns, *event_keys(), sqlite_autoincrement=True)
    op.execute(f"INSERT INTO events ({names}) SELECT {names} FROM events_before_0002 ORDER BY position")  # noqa: S608
    op.execute("DROP TABLE events_before_0002")
    op.create_index("events_order", "events", ["order_xid", "position"])
    op.create_index("events_category_order", "events", ["category", "order_xid", "position"])
