"""Processes, their timers, and commands that are sent later."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.values import keys, needed, optional

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the two tables."""
    op.create_table(
        "factfold_processes",
        *keys("process", "instance"),
        *needed(sa.Integer, "version", "code"),
        *needed(sa.Text, "status", "problem"),
        *needed(sa.DateTime(timezone=True), "started", "stepped"),
    )
    op.create_index("factfold_processes_status", "factfold_processes", ["process", "status", "stepped"])
    op.create_table("factfold_scheduled", sa.Column("id", sa.Uuid, primary_key=True), *scheduled_columns())
    op.create_index("factfold_scheduled_due", "factfold_scheduled", ["due"])
    op.create_index("factfold_scheduled_instance", "factfold_scheduled", ["process", "instance"])


def scheduled_columns() -> list[sa.Column[Any]]:
    """Return the columns of the table `factfold_scheduled` after its id, for migrations."""
    return [
        sa.Column("due", sa.DateTime(timezone=True)),
        *needed(sa.Text, "kind", "name", "target", "arguments"),
        sa.Column("expires", sa.DateTime(timezone=True)),
        *optional(sa.Text, "process", "instance"),
        sa.Column("answered", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        *optional(sa.Text, "correlation_id", "causation_id", "traceparent"),
    ]
