"""Streams that are finished, and take no events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table of archived streams."""
    op.create_table(
        "archived_streams",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
    )
