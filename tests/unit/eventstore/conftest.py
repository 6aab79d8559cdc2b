"""Fixtures of the event store's own tests."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.ledger import METADATA


@pytest.fixture
def engine(tmp_path):
    """The database of a service that keeps a ledger."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/service.db")
    METADATA.create_all(engine)
    yield engine
    engine.dispose()
