"""Destroyed keys numbered in their order, so that projections can follow them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NUMBER = """
update subject_keys set erasure = (
    select count(*) from subject_keys o
    where o.erased is not null and (o.erased, o.key_id) <= (subject_keys.erased, subject_keys.key_id)
) where erased is not null
"""


def upgrade() -> None:
    """Number what was destroyed before by its time."""
    op.add_column("subject_keys", sa.Column("erasure", sa.BigInteger))
    op.execute(_NUMBER)
    op.create_index("subject_keys_erasure", "subject_keys", ["erasure"], unique=True)
