"""What a user's tests are given: fixtures of the plug-in, and events delivered as often as a log may."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from eventstore import Accepted, Dispatcher, MemoryEventStore, SqlEventStore, subscription
from eventstore.testing.delivering import deliver
from eventstore.testing.fixed import FixedClock, FixedIds
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.unit.eventstore.counter import Counter

pytest_plugins = ["pytester"]


@pytest.fixture
def engine() -> sa.Engine:
    made = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    METADATA.create_all(made)
    return made


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
    Dispatcher(sqlite_event_store).send("a", Counter.add, 1)
    assert [recorded.time.year for recorded in sqlite_event_store.read_stream("counter-a")] == [2026]


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
