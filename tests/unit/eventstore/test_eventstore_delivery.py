"""Batches settled against a source in memory and SQLite, with a failure at every step."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from eventstore import RecordedEvent, Subscriber, subscription
from eventstore.delivery.attempt import DeliveryReport
from eventstore.errors import (
    BrokerUnreachable,
    DeclarationError,
    NotFramedAvro,
    StoreUnavailable,
    SubscriptionError,
    UnknownSchema,
)
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.unit.eventstore.handlers import booking, deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, arrivals, recorded


def test_a_batch_is_one_transaction_and_then_acknowledged(engine):
    begun = []
    sa.event.listen(engine, "begin", begun.append)
    source = MemorySource(arrivals(1, 2, 3))
    with Subscriber(booking(), source, engine=engine) as subscriber:
        before = len(begun)
        assert subscriber.run_once(timeout=0).handled == 3
        assert len(begun) - before == 2  # the batch, and a look at the inbox for what is old
    assert amounts(engine) == [1, 2, 3]
    assert source.acknowledged == ["1", "2", "3"]
    assert source.closed


ONE, TWO, THREE = arrivals(1, 2, 3)
TEN = arrivals(*range(10))
REFUNDED = MemoryArrival(recorded(9, kind=Payment.Refunded), "9")
DELETED = MemoryArrival(None, "deleted")
UNKNOWN = MemoryArrival(None, "unknown", UnknownSchema("schema id 7 is not registered", remedy="wait"))
UNFRAMED = MemoryArrival(None, "unframed", NotFramedAvro("no frame", remedy="look"))
UNFIT = MemoryArrival(recorded(1, data={"sum": 1}), "unfit")
AWAY, BROKERLESS = StoreUnavailable("away", remedy="wait"), BrokerUnreachable("no broker", remedy="start one")

# The batches, options of the handler, what fails, what the report counts, the amounts booked, the places acknowledged.
RUNS = {
    "a redelivered event is not handled again": (
        [[ONE, TWO], [ONE, TWO], [THREE]], {}, {}, {"handled": 3, "duplicates": 2}, [1, 2, 3], "12123"),
    "an event twice in one batch is handled once": (
        [[ONE, TWO, ONE]], {}, {}, {"handled": 2, "duplicates": 1}, [1, 2], "121"),
    "a handler that fails for a while is tried again, and order is kept": (
        [[ONE, TWO, THREE]], {"fails_on": [2], "fails_times": 2}, {}, {"handled": 3, "retried": 2}, [1, 2, 3], "123"),
    "a record that always fails becomes a dead letter, and the others are handled": (
        [TEN], {"fails_on": [3, 7], "attempts": 3}, {}, {"handled": 8, "dead": 2, "retried": 4},
        [0, 1, 2, 4, 5, 6, 8, 9], "0123456789"),
    "events the handler does not name are counted and acknowledged": (
        [[ONE, REFUNDED, DELETED]], {}, {}, {"handled": 1, "skipped": 2}, [1], ["1", "9", "deleted"]),
    "records that cannot be read or do not fit become dead letters without a call": (
        [[ONE, UNKNOWN, UNFIT, TWO]], {}, {}, {"handled": 2, "dead": 2}, [1, 2], ["1", "unknown", "unfit", "2"]),
    "a database that comes back costs no record": (
        [[ONE, TWO]], {"attempts": 1}, {"checkpoint": [AWAY, AWAY]}, {"handled": 2}, [1, 2], "12"),
}  # fmt: skip


@pytest.mark.parametrize("what", RUNS)
def test_a_run(engine, what):
    batches, options, fails, counts, booked, acknowledged = RUNS[what]
    source = MemorySource(*batches, fails={step: list(errors) for step, errors in fails.items()})
    report = deliver(booking(**options), source, engine)
    assert report == DeliveryReport(**counts)
    assert (amounts(engine), source.acknowledged) == (booked, list(acknowledged))
    assert len(source.dead) == report.dead


def test_a_dead_letter_says_where_it_comes_from_and_why_and_how_often_it_was_tried(engine):
    source = MemorySource([UNKNOWN, UNFIT, *arrivals(3)])
    deliver(booking(fails_on=[3], attempts=3), source, engine)
    assert [(letter.arrival.place, letter.attempts) for letter in source.dead] == [
        ("unknown", 0), ("unfit", 0), ("3", 3),
    ]  # fmt: skip
    words = ["is not registered", "has no value for field amount", "no room for 3"]
    assert all(said in str(letter.error) for letter, said in zip(source.dead, words, strict=True))


# The batch, options of the handler, what fails, the error that ends it, the amounts booked, the places acknowledged.
ENDS = {
    "unreadable records stop the subscription where it says so": (
        [ONE, UNFRAMED, TWO], {"unreadable": "stop"}, {}, NotFramedAvro, [1], "1"),
    "a database that stays away ends the subscription and gives up no record": (
        [ONE, TWO], {"attempts": 1}, {"checkpoint": [AWAY] * 1000}, StoreUnavailable, [], ""),
    "a dead letter that cannot be stored ends it before its record is acknowledged": (
        [ONE, TWO], {"fails_on": [2], "attempts": 1}, {"dead_letter": [BROKERLESS]}, BrokerUnreachable, [1], "1"),
    "a source that fails while the handler works ends it after the batch at hand": (
        [ONE], {}, {"prepare": [BROKERLESS]}, BrokerUnreachable, [1], "1"),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_an_end(engine, what):
    batch, options, fails, error, booked, acknowledged = ENDS[what]
    source = MemorySource(batch, fails={step: list(errors) for step, errors in fails.items()})
    with pytest.raises(error, match=r"no frame|away|no broker"):
        deliver(booking(**options), source, engine, patience=0.05)
    assert (source.dead, amounts(engine), source.acknowledged) == ([], booked, list(acknowledged))


def test_one_event_in_two_topics_of_a_subscription_is_handled_once_for_each(engine):
    """A branch topic holds the very events of its category's."""
    one, two, three = arrivals(1, 2, 3)
    other = [MemoryArrival(one.event, "o1", topic="suspicious"), MemoryArrival(three.event, "o3", topic="suspicious")]
    batch = [one, other[0], two, other[1], three]
    declared = subscription(["payments", "suspicious"], group="books")(booking().handler)
    assert deliver(declared, MemorySource(batch), engine).handled == 5
    assert amounts(engine) == [1, 1, 2, 3, 3]
    assert deliver(declared, MemorySource(batch), engine).duplicates == 5
    assert deliver(booking(), MemorySource([one, two, three]), engine).duplicates == 3  # rows of one topic stay valid


def test_claims_of_all_topics_are_taken_back_behind_a_handler_that_commits_by_itself(engine):
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == 2:
            tx.connection.driver_connection.commit()

    batch = [MemoryArrival(a.event, a.place, topic=f"t{n % 2}") for n, a in enumerate(arrivals(1, 2, 3, 4))]
    declared = subscription(["t0", "t1"], group="books", attempts=2, backoff=0.001)(book)
    source = MemorySource(batch)
    report = deliver(declared, source, engine)
    assert (report.handled + report.duplicates, report.dead) == (3, 1)
    assert amounts(engine) == [1, 2, 3, 4]


def test_without_a_transaction_a_failure_repeats_no_earlier_record():
    handled, failures = [], [ValueError("once")]

    def note(event: Payment.Received) -> None:
        if event.amount == 2 and failures:
            raise failures.pop()
        handled.append(event.amount)

    source = MemorySource(arrivals(1, 2, 3))
    report = deliver(subscription("payments", group="g", backoff=0.001)(note), source)
    assert handled == [1, 2, 3]
    assert (report.handled, report.retried) == (3, 1)
    assert source.acknowledged == ["1", "2", "3"]


def test_a_batch_handler_gets_the_new_events_of_a_batch_in_order(engine):
    calls = []

    def book(events: list[Payment.Received], why: list[RecordedEvent], tx: sa.Connection) -> None:
        calls.append([event.amount for event in events])
        assert [one.version for one in why] == calls[-1]

    declared = subscription("payments", group="g")(book)
    first = arrivals(1, 2)
    report = deliver(declared, MemorySource(first, [*first, *arrivals(3)]), engine)
    assert calls == [[1, 2], [3]]
    assert (report.handled, report.duplicates) == (3, 2)


def test_a_batch_handler_that_fails_is_halved_down_to_the_bad_record(engine):
    def book(events: list[Payment.Received], tx: sa.Connection) -> None:
        if any(event.amount == 5 for event in events):
            raise ValueError("5 again")
        tx.execute(sa.insert(LEDGER), [{"amount": event.amount} for event in events])

    source = MemorySource(arrivals(*range(8)))
    declared = subscription("payments", group="g", attempts=2, backoff=0.001)(book)
    report = deliver(declared, source, engine)
    assert (report.handled, report.dead) == (7, 1)
    assert amounts(engine) == [0, 1, 2, 3, 4, 6, 7]
    assert [letter.arrival.place for letter in source.dead] == ["5"]


def test_a_handler_of_recorded_events_gets_every_type():
    seen = []

    def note(event: RecordedEvent) -> None:
        seen.append((event.type, str(event.caused().causation_id) == str(event.id)))

    batch = [*arrivals(1), MemoryArrival(recorded(2, kind=Payment.Refunded), "2")]
    deliver(subscription("payments", group="g")(note), MemorySource(batch))
    assert seen == [("payment.received", True), ("payment.refunded", True)]


def test_what_fails_only_at_the_commit_is_found_and_given_up(engine):
    """SQLite checks a deferred foreign key when the transaction ends."""
    with engine.begin() as tx:
        tx.exec_driver_sql("create table parent (id integer primary key)")
        tx.exec_driver_sql("create table child (p integer references parent deferrable initially deferred)")

    def adopt(event: Payment.Received, tx: sa.Connection) -> None:
        tx.exec_driver_sql("pragma defer_foreign_keys")
        tx.exec_driver_sql("insert into child values (?)", (event.amount if event.amount == 3 else None,))

    sa.event.listen(engine, "connect", lambda driver, _: driver.execute("pragma foreign_keys=on"))
    engine.dispose()
    source = MemorySource(arrivals(1, 2, 3, 4))
    declared = subscription("payments", group="g", attempts=2, backoff=0.001)(adopt)
    report = deliver(declared, source, engine)
    assert (report.handled, report.dead) == (3, 1)
    assert [letter.arrival.place for letter in source.dead] == ["3"]
    assert "FOREIGN KEY" in str(source.dead[0].error)


def test_a_locked_sqlite_database_is_an_outage_and_no_dead_letter(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/locked.db", connect_args={"timeout": 0.01})
    METADATA.create_all(engine)
    source = MemorySource(arrivals(1))
    with Subscriber(booking(attempts=1), source, engine=engine, patience=0.05) as subscriber:
        with engine.begin() as other:
            other.execute(sa.insert(LEDGER).values(amount=0))
            with pytest.raises(StoreUnavailable, match="locked"):
                subscriber.run_once(timeout=0)
    assert source.dead == source.acknowledged == []
    engine.dispose()


def test_a_claim_that_fails_is_no_fault_of_a_record(engine):
    source = MemorySource(arrivals(1, 2))
    with Subscriber(booking(attempts=1), source, engine=engine, patience=0.05) as subscriber:
        with engine.begin() as tx:
            tx.exec_driver_sql("drop table factfold_inbox")
        with pytest.raises(StoreUnavailable, match="no such table"):
            subscriber.run_once(timeout=0)
    assert (source.dead, source.acknowledged, amounts(engine)) == ([], [], [])


def test_an_acknowledgement_that_fails_loses_nothing_and_repeats_nothing(engine):
    batch = arrivals(1, 2)
    source = MemorySource(batch, fails={"acknowledge": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(booking(), source, engine)
    again = MemorySource(batch)
    assert deliver(booking(), again, engine).duplicates == 2
    assert (amounts(engine), again.acknowledged) == ([1, 2], ["1", "2"])


def test_a_subscriber_with_records_left_behind_does_not_go_on(engine):
    """It would acknowledge later ones, and the broker knows one place a partition."""
    source = MemorySource(arrivals(1, 2), arrivals(3), fails={"dead_letter": [BrokerUnreachable("no", remedy="wait")]})
    with Subscriber(booking(fails_on=[1], attempts=1), source, engine=engine) as subscriber:
        with pytest.raises(BrokerUnreachable):
            subscriber.run_once(timeout=0)
        with pytest.raises(SubscriptionError, match="2 records unsettled"):
            subscriber.run_once(timeout=0)
    assert source.acknowledged == []


def test_a_handler_with_a_transaction_needs_a_database():
    with pytest.raises(DeclarationError, match="takes a transaction"):
        Subscriber(booking(), MemorySource())
