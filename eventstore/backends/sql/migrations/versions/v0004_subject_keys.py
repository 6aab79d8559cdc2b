"""Keys of subjects, for personal fields, and the streams that subjects stand in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.values import keys

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the two tables of erasure."""
    op.create_table(
        "subject_keys",
        sa.Column("key_id", sa.Uuid, primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("wrapped", sa.LargeBinary),
        sa.Column("master", sa.Text),
        sa.Column("erased", sa.DateTime(timezone=True)),
    )
    live = sa.text("wrapped IS NOT NULL")
    op.create_index(
        "subject_keys_live", "subject_keys", ["subject"], unique=True, postgresql_where=live, sqlite_where=live
    )
    op.create_table(
        "subject_streams",
        *keys("subject", "stream"),
    )
