"""Processes, their timers, and commands that are sent later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the two tables."""
    op.create_table(
        "factfold_processes",
        sa.Column("process", sa.Text, primary_key=True),
        sa.Column("instance", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stepped", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("factfold_processes_status", "factfold_processes", ["process", "status", "stepped"])
    op.create_table(
        "factfold_scheduled",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("due", sa.DateTime(timezone=True)),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True)),
        sa.Column("process", sa.Text),
        sa.Column("instance", sa.Text),
        sa.Column("answered", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("correlation_id", sa.Text),
        sa.Column("causation_id", sa.Text),
        sa.Column("traceparent", sa.Text),
    )
    op.create_index("factfold_scheduled_due", "factfold_scheduled", ["due"])
    op.create_index("factfold_scheduled_instance", "factfold_scheduled", ["process", "instance"])
