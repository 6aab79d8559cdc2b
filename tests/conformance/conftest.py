"""The conformance suites live in the packages; their assertions are to be explained as tests' are."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eventstore import SqlEventStore
    from projections.stores.sql import SqlTableStore

pytest.register_assert_rewrite(
    "eventstore.testing.key_stores",
    "eventstore.testing.open_streams",
    "eventstore.testing.changed_classes",
    "eventstore.testing.closed_streams",
    "eventstore.testing.stored_snapshots",
    "eventstore.testing.joined_transactions",
)


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SqlEventStore]]:
    """A function that opens a new store; its CloudEvents source is the module's SOURCE."""
    from eventstore import SqlEventStore

    stores: list[SqlEventStore] = []

    def create() -> SqlEventStore:
        url = f"sqlite:///{tmp_path}/{uuid.uuid4().hex}.db"
        if request.param == "postgres":
            url = request.getfixturevalue("database")()
        stores.append(SqlEventStore(url, source=request.module.SOURCE))
        stores[-1].create_tables()
        return stores[-1]

    yield create
    for store in stores:
        store.close()


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlTableStore]:
    """An empty table store."""
    from projections.stores.postgres import PostgresTableStore
    from projections.stores.sqlite import SqliteTableStore

    if request.param == "SQLite":
        opened: SqlTableStore = SqliteTableStore(tmp_path / "views.db")
    else:
        opened = PostgresTableStore(request.getfixturevalue("database")())
    opened.prepare()
    yield opened
    opened.close()
