"""Fixtures of the event store's own tests."""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa

from eventstore import MasterKeys, SqlEventStore
from tests.ledger import METADATA


@pytest.fixture
def engine(tmp_path):
    """The database of a service that keeps a ledger."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/service.db")
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def keyed_store(store_url):
    """A store in SQLite with keys for personal fields."""
    with SqlEventStore(store_url, keys=MasterKeys({"one": os.urandom(32)})) as store:
        yield store
