"""SQLite is an event store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import Connection

from eventstore import SqlEventStore
from eventstore.testing.conformance import StoreConformance, TransactionConformance


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlEventStore]:
    with SqlEventStore(f"sqlite:///{tmp_path_factory.mktemp('store') / 'events.db'}") as store:
        store.create_tables()
        yield store


class TestSqlite(StoreConformance, TransactionConformance):
    @pytest.fixture
    def store(self, sqlite_store: SqlEventStore) -> SqlEventStore:
        return sqlite_store

    @pytest.fixture
    def begin(self, sqlite_store: SqlEventStore) -> Callable[[], AbstractContextManager[Connection]]:
        return sqlite_store.engine.begin
