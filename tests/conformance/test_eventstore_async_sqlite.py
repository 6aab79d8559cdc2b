"""SQLite is an event store on asyncio, too."""

from __future__ import annotations

import pytest

from eventstore.testing.conformance import StoreConformance
from tests.conformance.on_a_loop import on_a_loop


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory):
    with on_a_loop(f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('store') / 'events.db'}") as store:
        yield store


class TestAsyncSqlite(StoreConformance):
    @pytest.fixture
    def store(self, sqlite_store):
        return sqlite_store
