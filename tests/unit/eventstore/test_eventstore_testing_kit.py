"""What a user's tests are given: fixtures of the plug-in, and events delivered as often as a log may."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from eventstore import (
    NO_STREAM,
    Accepted,
    AsyncSqlEventStore,
    Dispatcher,
    MemoryEventStore,
    SqlEventStore,
    subscription,
)
from eventstore.errors import DeclarationError
from eventstore.testing.delivering import deliver, deliver_async
from eventstore.testing.fixed import FixedClock, FixedIds
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.unit.eventstore.counter import Counter

pytest_plugins = ["pytester"]


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    made = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    METADATA.create_all(made)
    yield made
    made.dispose()


@subscription("payment", group="books", attempts=2)
def book(event: Payment.Received, tx: sa.Connection) -> None:
    if event.amount < 0:
        raise ValueError("no room")
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))


PAID = [Payment.Received(amount=1), Payment.Refunded(amount=9), Payment.Received(amount=2)]


def test_events_delivered_many_times_are_booked_once(engine: sa.Engine) -> None:
    report = deliver(book, *PAID, times=3, engine=engine)
    assert amounts(engine) == [1, 2]
    assert (report.handled, report.duplicates, report.skipped) == (2, 4, 3)


def test_a_handler_without_an_inbox_shows_what_repetition_does_to_it(engine: sa.Engine) -> None:
    seen: list[int] = []

    @subscription("payment", group="seen")
    def see(event: Payment.Received) -> None:
        seen.append(event.amount)

    deliver(see, *PAID, times=2)
    assert seen == [1, 2, 1, 2]


def test_what_a_handler_raises_is_raised_and_nothing_of_it_stays(engine: sa.Engine) -> None:
    with pytest.raises(ValueError, match="no room"):
        deliver(book, Payment.Received(amount=1), Payment.Received(amount=-1), engine=engine)
    assert amounts(engine) == [1]


@pytest.fixture
def looped(tmp_path: Path) -> AsyncEngine:
    """The same ledger, for coroutines."""
    plain = sa.create_engine(f"sqlite:///{tmp_path}/ledger.db")
    METADATA.create_all(plain)
    plain.dispose()
    return create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/ledger.db")


@subscription("payment", group="books", attempts=2)
async def book_later(event: Payment.Received, tx: AsyncConnection) -> None:
    await asyncio.sleep(0)
    if event.amount < 0:
        raise ValueError("no room")
    await tx.execute(sa.insert(LEDGER).values(amount=event.amount))


def booked(looped: AsyncEngine) -> list[int]:
    plain = sa.create_engine(looped.url.set(drivername="sqlite"))
    try:
        return amounts(plain)
    finally:
        plain.dispose()


def test_a_handler_that_is_a_coroutine_function_is_run(looped: AsyncEngine) -> None:
    report = deliver(book_later, *PAID, times=3, engine=looped)
    assert (report.handled, report.duplicates, report.skipped, booked(looped)) == (2, 4, 3, [1, 2])
    with pytest.raises(ValueError, match="no room"):
        deliver(book_later, Payment.Received(amount=-1), engine=looped)


async def test_in_a_test_that_is_a_coroutine_it_is_awaited(looped: AsyncEngine) -> None:
    with pytest.raises(DeclarationError, match="so is the test") as refused:
        deliver(book_later, *PAID, engine=looped)
    assert "deliver_async" in refused.value.remedy
    report = await deliver_async(book_later, *PAID, times=2, engine=looped)
    await looped.dispose()
    assert (report.handled, report.duplicates, booked(looped)) == (2, 2, [1, 2])


def test_what_a_dispatcher_accepted_is_delivered_as_it_was_recorded() -> None:
    seen: list[Any] = []

    @subscription("counter", group="seen")
    def see(event: Counter.Counted) -> None:
        seen.append(event)

    accepted = Dispatcher(MemoryEventStore()).send("a", Counter.add, 3)
    assert isinstance(accepted, Accepted)
    deliver(see, *accepted.events)
    assert seen == [Counter.Counted(by=3)]


def test_a_store_of_the_plug_in_tells_the_same_time_and_ids_in_every_run(
    event_dispatcher: Dispatcher, event_store: MemoryEventStore, event_clock: FixedClock, event_ids: FixedIds
) -> None:
    first = event_dispatcher.send("a", Counter.add, 1)
    event_clock.advance(timedelta(minutes=1))
    second = event_dispatcher.send("a", Counter.add, 1)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert [first.command.id.int, first.events[0].id.int] == [1, 2]
    assert second.events[0].time == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert event_store.head("counter-a") == 1
    assert event_ids().int == 5


def test_the_plug_in_has_a_store_in_a_file(sqlite_event_store: SqlEventStore) -> None:
    Dispatcher(sqlite_event_store).send("a", Counter.add_each, 1, 2)
    recorded = list(sqlite_event_store.read_stream("counter-a"))
    assert [(event.time.year, event.id.int) for event in recorded] == [(2026, 1), (2026, 2)]


async def test_the_plug_in_has_a_store_for_coroutines(
    async_event_store: AsyncSqlEventStore, sqlite_event_store: SqlEventStore
) -> None:
    await async_event_store.append("counter-a", [Counter.Counted(by=1)], expected=NO_STREAM)
    assert [(e.time.year, e.id.int) async for e in async_event_store.read_stream("counter-a")] == [(2026, 1)]
    assert sqlite_event_store.head("counter-a") == 0


def test_the_plug_in_is_there_without_a_word_and_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_was_imported():
            assert not {"sqlalchemy", "fastavro", "pydantic"} & set(sys.modules)

        def test_a_store_is_there(event_store):
            assert event_store.head("order-1") is None
        """
    )
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=2)
