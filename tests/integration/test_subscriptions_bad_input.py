"""Records, handlers, topics and brokers that fail a subscription: a cause each, and nothing lost."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore import Subscriber, open_subscriber, subscription
from eventstore.errors import BrokerRefused, BrokerUnreachable, OffsetsExpired, SubscriptionError, TopicMissing
from eventstore.inbox import Inbox
from eventstore.kafka.admin import quiet
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import reset_group
from eventstore.kafka.source import KafkaSource
from tests.errors import raises
from tests.integration.delivering import booking, deliver, noting
from tests.ledger import LEDGER, Payment, amounts
from tests.waiting import wait_until

# By amount: 2 MB is more than librdkafka sends by default; the other, with what belongs to it, is all a topic takes.
LENGTHS = {1: 2_000_000, 2: (16 << 20) - 1_000}


def test_a_dead_letter_is_the_untouched_record_with_its_cause(settings, payments, engine):
    records = payments.receive([1, 2, 3], partition=3)
    declared = booking(payments.name, fails_on=[2], attempts=2)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        report = deliver(subscriber, records=3)
    assert (report.handled, report.dead, report.retried) == (2, 1, 1)
    assert amounts(engine) == [1, 3]
    (letter,) = read_range(settings, f"{payments.name}.books.dead-letter")
    own = [pair for pair in letter.headers if not pair[0].startswith("dead_letter_")]
    told = {name: value.decode() for name, value in letter.headers if name.startswith("dead_letter_")}
    assert (letter.key, letter.value, tuple(own)) == (records[1].key, records[1].value, records[1].headers)
    assert datetime.now(UTC).timestamp() - datetime.fromisoformat(told.pop("dead_letter_time")).timestamp() < 60
    assert told == {
        "dead_letter_topic": payments.name,
        "dead_letter_partition": "3",
        "dead_letter_offset": "1",
        "dead_letter_group": "books",
        "dead_letter_error": "ValueError",
        "dead_letter_message": "no room for 2",
        "dead_letter_attempts": "2",
    }


UNKNOWN_ID = 0x7FFFFF07  # a registry counts from 1, and a fingerprint is not met by chance
UNKNOWN = b"\0" + UNKNOWN_ID.to_bytes(4, "big") + b"body"


def test_records_without_a_readable_event_are_dead_letters_with_their_cause_and_nothing_else_is(settings, payments):
    one, value = Payment.Received(amount=1), payments.record(Payment.Received(amount=1)).value
    payments.put(
        [
            payments.record(one, partition=0, value=UNKNOWN),
            payments.record(one, partition=0, value=value[:5]),
            payments.record(one, partition=0, value=b"{}"),
            payments.record(one, partition=0, ce_type="payment.nonsense"),
            payments.record(one, partition=0, ce_id=None),
            payments.record(one, partition=0, ce_source="/billing"),
            payments.record(Payment.Refunded(amount=5), partition=0),
            payments.record(one, partition=0),
        ]
    )
    seen: list[int] = []
    with open_subscriber(
        noting(payments.name, group="g", into=seen, source="/payments"), settings=settings
    ) as subscriber:
        report = deliver(subscriber, records=8)
    assert (report.handled, report.skipped, report.dead) == (1, 1, 6)
    letters = [dict(letter.headers) for letter in read_range(settings, f"{payments.name}.g.dead-letter")]
    assert [letter["dead_letter_offset"] for letter in letters] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    causes = [letter["dead_letter_message"].decode().splitlines()[0] for letter in letters]
    words = [f"{UNKNOWN_ID} is not registered", "no Avro body", "Confluent frame", "payment.nonsense", "ce_id"]
    assert all(said in cause for cause, said in zip(causes, [*words, "the record's source is '/billing'"], strict=True))


def test_a_schema_registered_while_the_subscriber_runs_is_found(settings, payments):
    from eventstore import Aggregate, event
    from eventstore.kafka.producer import OutgoingRecord
    from eventstore.topics import SCHEMAS_TOPIC

    class Late(Aggregate, category="payment"):
        @event
        class Disputed:
            amount: int
            why: str

    seen = []

    def note(event: Late.Disputed) -> None:
        seen.append(event.why)

    with open_subscriber(subscription(payments.name, group="g")(note), settings=settings) as subscriber:
        payments.receive([1])
        deliver(subscriber, records=1)
        kind = Late.event_types["payment.disputed"].registered
        payments.put([OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(kind.id).encode(), value=kind.to_json())])
        payments.put([payments.record(Late.Disputed(amount=2, why="late"))])
        assert deliver(subscriber, records=2).handled == 1
    assert seen == ["late"]


def test_a_handler_stuck_in_the_database_is_cut_off_too(settings, payments, engine):
    def stuck(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.text("select pg_sleep(60)"))

    payments.receive([1])
    declared = subscription(payments.name, group="books", timeout=0.3)(stuck)
    with (
        open_subscriber(declared, settings=settings, engine=engine) as subscriber,
        raises(SubscriptionError, code="handler-hung"),
    ):
        deliver(subscriber, records=1)
    wait_until(lambda: not any(thread.name == "handler of books" for thread in threading.enumerate()))


def test_a_connection_lost_below_the_handler_is_no_fault_of_the_record(settings, payments, engine):
    calls = []

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        calls.append(event.amount)
        if len(calls) == 1:
            tx.execute(sa.text("select pg_terminate_backend(pg_backend_pid())"))
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    payments.receive([1])
    declared = subscription(payments.name, group="books", attempts=1)(book)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        assert deliver(subscriber, records=1).dead == 0
    assert (calls, amounts(engine)) == ([1, 1], [1])


class _Impatient(KafkaSource):
    """Its group takes the partitions of a member that has not polled for six seconds."""

    losses = 0

    def _lost(self, consumer, partitions):
        super()._lost(consumer, partitions)
        self.losses += 1

    def _consumer_settings(self):
        return super()._consumer_settings() | {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}


def test_what_a_member_had_fetched_when_it_lost_its_partitions_is_handled_once_by_the_group(settings, payments, engine):
    """As after a long pause of the process: what is fetched ahead is another's by then."""
    payments.receive(range(40))
    declared = booking(payments.name, batch=10)
    lost = _Impatient(declared, settings)
    with Subscriber(declared, lost, engine=engine) as asleep:
        done = deliver(asleep, records=10).records
        assert lost._ahead
        time.sleep(7)
        with open_subscriber(declared, settings=settings, engine=engine) as other:
            # What the first has handled, and not yet committed in Kafka, comes once more, and is passed over.
            wait_until(lambda: other.run_once(timeout=0.2) and other.report.handled == 40 - done, pause=0)
            # It joins again, and gets nothing: the other is asked for a share at its next poll only.
            wait_until(lambda: not asleep.run_once(timeout=0.1).records and not (lost._ahead or lost._places.owned()))
    assert sorted(amounts(engine)) == list(range(40))


class _Attentive(KafkaSource):
    """It hears within a tenth of a second that another member has left."""

    def _consumer_settings(self):
        return super()._consumer_settings() | {"heartbeat.interval.ms": 100}


def test_a_member_that_is_being_given_partitions_closes_at_once(settings, payments, engine):
    """A client that closes answers no question, and used to be asked where to start: ten seconds, or for good."""
    declared = booking(payments.name)
    with Subscriber(declared, first := _Attentive(declared, settings), engine=engine) as staying:
        wait_until(lambda: staying.run_once(timeout=0.1) and first._places.owned())
        with Subscriber(declared, second := _Attentive(declared, settings), engine=engine) as leaving:
            wait_until(lambda: [s.run_once(timeout=0.05) for s in (staying, leaving)] and second._places.owned())
        time.sleep(1)  # until librdkafka has partitions for the first, which nobody can see before its next poll
        began = time.monotonic()
    assert time.monotonic() - began < 5


def test_a_client_that_never_leaves_its_group_is_left_to_itself(settings, payments, engine, monkeypatch, capsys):
    monkeypatch.setattr("eventstore.kafka.consumer._CLOSING_SECONDS", 0.5)
    declared = booking(payments.name)
    source = KafkaSource(declared, settings)
    held = threading.Event()
    with Subscriber(declared, source, engine=engine):
        consumer = source._consumer
        source._consumer = SimpleNamespace(close=held.wait)
    assert "the group was not left" in capsys.readouterr().out
    held.set()
    consumer.close()


def test_partitions_that_were_lost_while_they_paused_are_read_again_when_they_are_back(settings, payments):
    """As when a handler is at work while the broker goes away: nobody else resumes what it had paused."""
    seen: list[int] = []
    payments.receive(range(10))
    declared = noting(payments.name, group="g", into=seen)
    source = _Impatient(declared, settings)
    with Subscriber(declared, source) as subscriber:
        deliver(subscriber, records=10)
        source.keep_alive()
        time.sleep(7)
        # Not by what it owns: one poll may tell of the loss and of the partitions' return.
        wait_until(lambda: source.keep_alive() or source.losses)
        payments.receive(range(10, 20))
        wait_until(lambda: subscriber.run_once(timeout=0.2) and set(seen) == set(range(20)), within=30)


def test_members_that_claim_the_same_events_wait_for_each_other(engine):
    """As after a rebalance without notice: both hold the same records, one in the other order."""
    Inbox(engine, "books").create_tables()
    ids = [uuid.uuid4().hex for _ in range(500)]
    won: list[int] = []

    def claim(mine: list[str]) -> None:
        inbox = Inbox(engine, "books")
        with inbox.begin() as tx:
            new = inbox.claim(tx, "payment", mine)
            won.append(len(mine) if new is None else len(new))

    threads = [threading.Thread(target=claim, args=(order,)) for order in (ids, ids[::-1]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(won) == [0] * 7 + [500]


def test_a_topic_that_is_missing_is_named(settings):
    with pytest.raises(TopicMissing, match=r"'no\.such'"):
        open_subscriber(noting("no.such", group="g", into=[]), settings=settings)


def test_a_topic_that_goes_away_ends_the_subscription(settings, payments):
    payments.receive([1])
    admin = AdminClient(quiet(settings.kafka))
    with open_subscriber(noting(payments.name, group="g", into=[]), settings=settings) as subscriber:
        deliver(subscriber, records=1)
        admin.delete_topics([payments.name])[payments.name].result(10)
        with pytest.raises(TopicMissing, match=payments.name):
            deliver(subscriber, records=2)


def test_a_dead_letter_may_be_as_long_as_a_record_of_its_topic(settings, payments, engine):
    long = [payments.record(Payment.Received(amount=n), partition=0, ce_long="x" * size) for n, size in LENGTHS.items()]
    payments.put(long)
    payments.receive([9], partition=0)
    declared = booking(payments.name, fails_on=LENGTHS, attempts=1)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        report = deliver(subscriber, records=3)
    assert (report.dead, amounts(engine)) == (2, [9])
    letters = list(read_range(settings, f"{payments.name}.books.dead-letter"))
    assert [dict(letter.headers)["ce_long"] for letter in letters] == [b"x" * size for size in LENGTHS.values()]


def test_a_record_that_is_too_long_is_refused_with_a_typed_error(settings, payments):
    with pytest.raises(BrokerRefused, match="too large"):
        payments.put([payments.record(Payment.Received(amount=1), ce_long="x" * (17 << 20))])


class _Unreachable(KafkaSource):
    """Its member finds no broker, though there was one when the subscriber was opened."""

    def _consumer_settings(self):
        return super()._consumer_settings() | {"bootstrap.servers": "127.0.0.1:1"}


def test_a_broker_that_stays_away_is_named_after_a_while_and_not_before(settings, payments):
    declared, patience = noting(payments.name, group="g", into=[]), 3.0
    began = time.monotonic()
    with Subscriber(declared, _Unreachable(declared, settings, patience=patience)) as subscriber:
        with pytest.raises(BrokerUnreachable, match="no Kafka broker answers"):
            wait_until(lambda: subscriber.run_once(timeout=0.1).records)
    assert time.monotonic() - began > patience


def test_records_deleted_before_they_were_read_are_not_passed_over_in_silence(settings, payments, monkeypatch):
    monkeypatch.setattr("eventstore.kafka.consumer._CLOSING_SECONDS", 2.0)  # a close after such an end may hang
    payments.receive(range(10), partition=0)
    seen: list[int] = []
    declared = noting(payments.name, group="g", into=seen, batch=2)
    with open_subscriber(declared, settings=settings) as subscriber:
        deliver(subscriber, records=2)
    admin = AdminClient(quiet(settings.kafka))
    for future in admin.delete_records([TopicPartition(payments.name, 0, 8)]).values():
        future.result(10)
    with (
        open_subscriber(declared, settings=settings) as subscriber,
        pytest.raises(OffsetsExpired, match="deleted unread"),
    ):
        deliver(subscriber, records=1)
    assert reset_group(settings, payments.name, group="g", to="beginning")[0] == 8
    with open_subscriber(declared, settings=settings) as subscriber:
        deliver(subscriber, records=2)
    assert seen[-2:] == [8, 9]
