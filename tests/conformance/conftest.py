"""Databases for the suites, which run on SQLite. `make faults` repeats some of them on PostgreSQL.

Mark a case ``both_databases`` where the statements, types or locks of the two differ: it always runs on both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from eventstore import SqlEventStore
    from projections.stores.sql import TableStore

pytest.register_assert_rewrite(
    "eventstore.testing.key_stores",
    "eventstore.testing.open_streams",
    "eventstore.testing.conformance",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the databases of a case by its nearest mark."""
    if "database_kind" not in metafunc.fixturenames:
        return
    kinds: list[Any] = ["SQLite"]
    if metafunc.definition.get_closest_marker("both_databases"):
        kinds.append("PostgreSQL")
    elif metafunc.definition.get_closest_marker("postgres_in_faults"):
        kinds.append(pytest.param("PostgreSQL", marks=pytest.mark.faults))
    metafunc.parametrize("database_kind", kinds, indirect=True)


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    """SQLite or PostgreSQL."""
    return request.param


@pytest.fixture
def new_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """A function that returns the URL of an empty database."""
    if database_kind == "SQLite":
        return lambda: f"sqlite:///{tmp_path}/{uuid.uuid4().hex}.db"
    return request.getfixturevalue("database")


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    """The URL of an empty database."""
    return new_url()


@pytest.fixture
def opened(new_url: Callable[[], str]) -> Iterator[Callable[..., SqlEventStore]]:
    """A function that opens a new event store with its tables."""
    from eventstore import SqlEventStore

    with ExitStack() as stores:

        def create(**options: Any) -> SqlEventStore:
            store = stores.enter_context(SqlEventStore(new_url(), source="/shop", **options))
            store.create_tables()
            return store

        yield create


@pytest.fixture
def shops(opened: Callable[..., SqlEventStore]) -> Callable[..., Any]:
    """A function that opens a shop of processes."""
    from tests.conformance.process_shop import Shop

    return lambda *kinds: Shop(opened(), *kinds)


@pytest.fixture
def shop(shops: Callable[..., Any]) -> Any:
    """A shop of the process that its module has."""
    return shops()


@pytest.fixture
def store(url: str) -> Iterator[TableStore]:
    """An empty table store."""
    from projections.stores.opening import open_table_store

    with closing(open_table_store(url)) as opened:
        opened.prepare()
        yield opened
