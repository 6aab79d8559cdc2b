"""A recorded command is stored with the first event that it led to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column, which is empty for all events so far: no row is written."""
    op.add_column("events", sa.Column("command", sa.Text))
