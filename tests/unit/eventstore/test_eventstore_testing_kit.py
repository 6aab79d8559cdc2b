"""What a user's tests are given: fixtures, events delivered as often as a log may, and given, when, then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import field
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
    Aggregate,
    Dispatcher,
    MemoryEventStore,
    SqlEventStore,
    command,
    event,
    subscription,
)
from eventstore.errors import DeclarationError, InvalidEventData, UnknownEventType
from eventstore.testing.delivering import deliver, deliver_async
from eventstore.testing.scenario import FixedClock, FixedIds, given
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


async def test_the_plug_in_has_a_store_for_coroutines(async_event_store, sqlite_event_store):
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


THREE = Counter.Counted(by=3)


def test_a_command_leads_to_its_events_and_its_state():
    outcome = given(Counter, THREE, THREE).when(Counter.add, 4, at_most=10)
    outcome.then(Counter.Counted(by=4)).then_state(count=10, version=2, id="1")


def test_a_command_that_changes_nothing_leads_to_no_event():
    given(Counter, THREE).when(Counter.add, 0).then().then_state(count=3)


def test_a_refused_command_says_why_and_leaves_the_past():
    given(Counter, THREE, id="a").when(Counter.add, 4, at_most=6).then_refused("more than 6").then_state(
        count=3, id="a"
    )


def test_each_when_begins_at_the_same_past():
    scenario = given(Counter, THREE)
    for _ in range(2):
        scenario.when(Counter.add, 1).then_state(count=4)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (lambda: given(Counter).when(Counter.add, 1).then(), "expected: \\[\\]"),
        (lambda: given(Counter).when(Counter.add, 1).then(Counter.Counted(by=2)), r"found: .*by=1"),
        (lambda: given(Counter).when(Counter.add, 9, at_most=1).then(), "refused: 0 and 9 are more than 1"),
        (lambda: given(Counter).when(Counter.add, 1).then_refused(), r"accepted: .*by=1"),
        (lambda: given(Counter).when(Counter.add, 9, at_most=1).then_refused("a full moon"), "expected: a full moon"),
        (lambda: given(Counter).when(Counter.add, 1).then_state(count=2), r"found: +{'count': 1}"),
    ],
    ids=["too much", "another event", "refused", "accepted", "another reason", "another state"],
)
def test_what_is_not_so_is_shown(claim, words):
    with pytest.raises(AssertionError, match=words):
        claim()


class Forgetful(Aggregate):
    names: list[str] = field(default_factory=list)
    count: int = 0

    @event
    class Named:
        name: str

    @command
    def name(self, name: str) -> None:
        self.count += 1
        self.emit(self.Named(name=name))

    def on_named(self, e: Named) -> None:
        self.names.append(e.name)


def test_a_command_that_changes_the_state_by_itself_is_found():
    with pytest.raises(AssertionError, match="what the events make of the state"):
        given(Forgetful).when(Forgetful.name, "Ada")


def test_an_event_that_no_store_would_take_or_that_is_another_s_is_refused():
    with pytest.raises(InvalidEventData, match="by"):
        given(Counter, Counter.Counted(by="much")).state()
    with pytest.raises(UnknownEventType):
        given(Counter, Forgetful.Named(name="Ada")).state()
