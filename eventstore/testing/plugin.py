"""Fixtures for pytest, there wherever Factfold is installed: a store in memory, a fixed clock, ids that count.

def test_an_order_is_shipped(event_dispatcher): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Imported where they are used: every run of pytest loads this module, whether its tests are ours or not.
if TYPE_CHECKING:
    from eventstore import AsyncSqlEventStore, Dispatcher, MemoryEventStore, SqlEventStore
    from eventstore.testing.scenario import FixedClock, FixedIds


@pytest.fixture
def event_clock() -> FixedClock:
    """A clock that tells 2026-01-01 until it is moved: ``event_clock.advance(timedelta(hours=1))``."""
    from eventstore.testing.scenario import FixedClock  # pytest loads this plug-in in every run

    return FixedClock()


@pytest.fixture
def event_ids() -> FixedIds:
    """Ids that count from 1."""
    from eventstore.testing.scenario import FixedIds  # pytest loads this plug-in in every run

    return FixedIds()


@pytest.fixture
def event_store(event_clock: FixedClock, event_ids: FixedIds) -> MemoryEventStore:
    """A store in memory, by ``event_clock`` and ``event_ids``."""
    from eventstore import MemoryEventStore  # pytest loads this plug-in in every run

    return MemoryEventStore(clock=event_clock, new_id=event_ids)


@pytest.fixture
def event_dispatcher(event_store: MemoryEventStore, event_ids: FixedIds) -> Dispatcher:
    """A dispatcher of ``event_store``, by ``event_ids``."""
    from eventstore import Dispatcher  # pytest loads this plug-in in every run

    return Dispatcher(event_store, new_id=event_ids)


@pytest.fixture
def sqlite_event_store(tmp_path: Path, event_clock: FixedClock, event_ids: FixedIds) -> Iterator[SqlEventStore]:
    """A store in an SQLite file of the test's own, for what has to be in a database; as ``event_store``."""
    from eventstore import SqlEventStore  # pytest loads this plug-in in every run

    with SqlEventStore(f"sqlite:///{tmp_path / 'events.db'}", clock=event_clock, new_id=event_ids) as store:
        store.create_tables()
        yield store


@pytest.fixture
def async_event_store(
    sqlite_event_store: SqlEventStore, event_clock: FixedClock, event_ids: FixedIds
) -> Iterator[AsyncSqlEventStore]:
    """A store for asyncio in the file of ``sqlite_event_store``, for tests that are coroutines."""
    import asyncio

    from eventstore import AsyncSqlEventStore  # pytest loads this plug-in in every run

    url = sqlite_event_store.engine.url.set(drivername="sqlite+aiosqlite")
    store = AsyncSqlEventStore(url, clock=event_clock, new_id=event_ids)
    yield store
    asyncio.run(store.close())
