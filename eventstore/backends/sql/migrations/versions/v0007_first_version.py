"""The first version that can be migrated: a new store is made from the models."""

from __future__ import annotations

revision = "0007"
down_revision = None


def upgrade() -> None:
    """Leave the tables as they are."""
