"""The inbox on SQLite: what is new, what is known, what is forgotten."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from sqlalchemy.dialects import postgresql

import eventstore.inbox
from eventstore import ANY, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.dialect import is_outage
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import (
    BrokerUnreachable,
    StoreUnavailable,
    SubscriptionError,
    UnsupportedBackend,
)
from eventstore.inbox import Inbox, inbox_table
from eventstore.kafka.arrivals import KafkaArrival, Retry, retry_of
from eventstore.kafka.places import Places
from eventstore.kafka.source import Holding, KafkaSource
from tests.errors import raises
from tests.ledger import Payment, amounts
from tests.rows import each_row
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.handlers import booking, deliver, ending
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, arrivals


@pytest.fixture
def inbox(engine):
    inbox = Inbox(engine, "fraud")
    inbox.create_tables()
    return inbox


def _rows(engine):
    with engine.connect() as connection:
        return connection.execute(sa.text("select event_id, outcome from factfold_inbox order by time")).all()


def test_only_ids_that_are_new_are_claimed(inbox):
    ids = [uuid.uuid4().hex for _ in range(1500)]
    with inbox.begin() as tx:
        assert inbox.claim(tx, "payments", ids[:1000]) in (None, set(ids[:1000]))
    with inbox.begin() as tx:
        assert inbox.claim(tx, "payments", ids) == set(ids[1000:])
    with inbox.begin() as tx:
        assert inbox.claim(tx, "payments", ids) == set()


def test_a_claim_is_gone_with_its_transaction(inbox, engine):
    with inbox.begin() as tx:
        inbox.claim(tx, "payments", [uuid.uuid4().hex])
        tx.rollback()
    assert _rows(engine) == []


def test_a_dead_event_may_be_claimed_again_and_is_handled_then(inbox, engine):
    one = uuid.uuid4().hex
    with inbox.begin() as tx:
        inbox.give_up(tx, "payments", one)
        inbox.give_up(tx, "payments", one)
    assert _rows(engine) == [(one, "dead")]
    with inbox.begin() as tx:
        assert inbox.claim(tx, "payments", [one]) in (None, {one})
    assert _rows(engine) == [(one, "handled")]


def test_old_rows_of_the_group_are_forgotten_and_no_others(inbox, engine):
    other = Inbox(engine, "shipping")
    mine, foreign = uuid.uuid4().hex, uuid.uuid4().hex
    for box, event_id in ((inbox, mine), (other, foreign)):
        with box.begin() as tx:
            box.claim(tx, "payments", [event_id])
    assert inbox.forget(["payments"], timedelta(days=1)) == 0
    assert inbox.forget(["payments"]) == 1
    assert [row.event_id for row in _rows(engine)] == [foreign]


@pytest.mark.parametrize("days", [-60, 60])
@pytest.mark.parametrize("write", ["claim", "give up"])
def test_a_subscriber_s_wrong_clock_neither_ages_rows_nor_forgets_them(inbox, engine, monkeypatch, days, write):
    one = uuid.uuid4().hex
    with monkeypatch.context() as patched:
        if hasattr(eventstore.inbox, "datetime"):
            patched.setattr("eventstore.inbox.datetime", _clock(days))
        with inbox.begin() as tx:
            inbox.claim(tx, "payments", [one]) if write == "claim" else inbox.give_up(tx, "payments", one)
    assert inbox.forget(["payments"], timedelta(days=30)) == 0
    with engine.connect() as connection:
        (time,) = connection.execute(sa.select(inbox_table(sa.MetaData()).c.time)).scalars()
    assert abs(time.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=5)


def _clock(days):
    class Wrong(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    return Wrong


def test_rows_are_forgotten_once_they_are_old_by_the_database_s_clock(inbox, engine):
    with inbox.begin() as tx:
        inbox.claim(tx, "payments", [uuid.uuid4().hex])
        tx.execute(sa.update(inbox_table(sa.MetaData())).values(time=datetime.now(UTC) - timedelta(days=31)))
    assert inbox.forget(["payments"], timedelta(days=32)) == 0
    assert inbox.forget(["payments"], timedelta(days=30)) == 1


@pytest.mark.parametrize("code", ["08006", "53300", "57P01", "25006", "40001", "40P01", "55P03"])
def test_a_database_that_is_away_or_says_not_now_is_no_records_fault(code):
    assert is_outage(_error(code))


@pytest.mark.parametrize("code", ["23505", "25P02", "42P01", "57014"])
def test_what_a_record_did_is_no_outage(code):
    assert not is_outage(_error(code))


def _error(code):
    """The error of this code, as SQLAlchemy wraps it."""
    import psycopg

    orig = psycopg.errors.lookup(code)("no")
    return sa.exc.DBAPIError.instance("select 1", {}, orig, psycopg.Error, dialect=postgresql.psycopg.dialect())


def test_a_database_that_is_not_there_is_unavailable(tmp_path):
    engine = sa.create_engine("postgresql+psycopg://nobody:secret-word@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable, match="does not answer") as refused:
        Inbox(engine, "g").create_tables()
    assert "secret-word" not in str(refused.value)


def test_a_driver_the_inbox_does_not_speak_is_refused():
    with pytest.raises(UnsupportedBackend, match="mysql"):
        Inbox(_Foreign(), "g")


class _Foreign:
    """As much of an engine as is looked at."""

    driver = "pymysql"
    dialect = sa.engine.default.DefaultDialect()
    dialect.name = "mysql"
    url = sa.make_url("mysql+pymysql://u:p@host/db")


def test_many_open_a_new_file_at_once(tmp_path):
    for number in range(5):
        engine = sa.create_engine(f"sqlite:///{tmp_path / f'{number}.db'}", poolclass=sa.pool.NullPool)
        start = threading.Barrier(8)

        def opened(_, engine=engine, start=start):
            start.wait()
            Inbox(engine, "fraud").create_tables()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(opened, range(8)))


# ---- Records that are taken as done before they are handled: a crash loses what was at hand, and nothing is repeated


def noting(into, *, each=lambda amount: None, **options):
    def note(event: Payment.Received) -> None:
        into.append(event.amount)
        each(event.amount)

    return subscription("payment", group="g", guarantee="at-most-once", **options)(note)


def test_records_are_taken_before_the_handler_is_called_and_not_acknowledged_behind_it():
    seen, source = [], MemorySource(arrivals(1, 2), arrivals(3))
    declared = noting(seen, each=lambda amount: taken.append(list(source.taken)))
    taken = []
    assert deliver(declared, source).handled == 3
    assert (taken, source.acknowledged) == ([["1", "2"], ["1", "2"], ["1", "2", "3"]], [])


def test_nothing_is_handled_that_could_not_be_taken():
    seen, source = [], MemorySource(arrivals(1), fails={"take": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(noting(seen), source)
    assert seen == []


def test_a_record_whose_handler_fails_is_a_dead_letter_after_one_call():
    seen, source = [], MemorySource(arrivals(1, 2, 3))
    report = deliver(noting(seen, each=lambda amount: 1 // (amount - 2)), source)
    assert (seen, report.handled, report.dead, report.retried) == ([1, 2, 3], 2, 1, 0)
    assert [letter.arrival.place for letter in source.dead] == ["2"]


def test_the_error_of_a_handler_that_hangs_says_that_records_are_lost():
    never = threading.Event()
    declared = noting([], each=lambda amount: never.wait(30), timeout=0.05)
    with raises(SubscriptionError, code="handler-hung") as hung:
        deliver(declared, MemorySource(arrivals(1)))
    never.set()
    assert "what was at hand is lost" in hung.value.remedy


@pytest.fixture
def store(store_url):
    with SqlEventStore(store_url) as store:
        for amount in (1, 2, 3):
            store.append("payment-1", [Payment.Received(amount=amount)], expected=ANY)
        yield store


def run(store, declared):
    """Deliver one batch; the halt that a handler sets ends it."""
    with Subscriber(declared, StoreSource(store, declared, category="payment")) as subscriber:
        halts.append(subscriber._halt)
        return subscriber.run_once(timeout=0)


halts = []


def test_what_a_stopped_subscriber_had_taken_and_not_handled_is_handled_by_the_next_one(store):
    seen = []
    halted = noting(seen, each=lambda amount: halts[-1].set())
    assert run(store, halted).handled == 1
    assert run(store, halted).handled == 1
    assert run(store, noting(seen)).handled == 1
    assert seen == [1, 2, 3]


def test_what_a_killed_subscriber_had_taken_is_not_handled_again(store):
    seen = []
    source = StoreSource(store, noting(seen), category="payment")
    source.open(lambda: None)
    source.take(source.poll(0))
    assert run(store, noting(seen)).records == 0
    assert seen == []


class Consumer:
    def __init__(self, *, fails=None):
        self.fails = fails
        self.commits = []

    def commit(self, *, offsets, asynchronous):
        if self.fails is not None:
            raise KafkaException(KafkaError(self.fails))
        self.commits.append(({(p.topic, p.partition): p.offset for p in offsets}, asynchronous))
        return offsets


def places(**options):
    consumer = Consumer(**options)
    found = Places(consumer)
    found.given([TopicPartition("payment", 0), TopicPartition("payment", 1)])
    return found, consumer


def test_offsets_are_committed_before_and_given_back_as_far_as_records_were_not_handled():
    taken, consumer = places()
    assert taken.take([Message(offset=3), Message(offset=7, partition=1), Message(offset=4)])
    taken.undone([(("payment", 0), 4)])
    taken.commit_now()
    assert consumer.commits == [
        ({("payment", 0): 5, ("payment", 1): 8}, False),
        ({("payment", 0): 4}, False),
    ]


def test_records_that_are_given_back_move_no_offset_that_was_not_committed_before():
    taken, consumer = places()
    taken.undone([(("payment", 0), 4)])
    taken.commit_now()
    assert consumer.commits == []


@each_row("code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION])
def test_while_the_group_moves_partitions_nothing_is_taken(code):
    assert not places(fails=code)[0].take([Message(offset=3)])


@each_row("code", [KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_a_commit_whose_answer_is_not_known_ends_the_subscriber_before_the_handler(code):
    with pytest.raises(KafkaException):
        places(fails=code)[0].take([Message(offset=3)])


def test_records_that_are_given_back_are_the_next_batch_and_not_done():
    source, (taken, consumer) = object.__new__(KafkaSource), places()
    source._places, source._ahead, source._servers, source._reads = taken, [], "", ""
    batch = [KafkaArrival(Message(offset=offset)) for offset in (3, 4, 5)]
    assert source.take(batch) == batch
    source.give_back(batch[1:])
    taken.commit_now()
    assert [offsets for offsets, _ in consumer.commits] == [{("payment", 0): 6}, {("payment", 0): 4}]
    assert source._ahead == batch[1:]


def test_records_that_could_not_be_taken_are_the_next_batch():
    source, (taken, _) = object.__new__(KafkaSource), places(fails=KafkaError.REBALANCE_IN_PROGRESS)
    source._places, source._ahead, source._servers, source._reads = taken, [], "", ""
    batch = [KafkaArrival(Message(offset=3))]
    assert (source.take(batch), source._ahead) == ([], batch)


# ---- Records that are put off: in the retry topic they wait for their time, and nothing waits for them


DELAYS = [timedelta(seconds=10), timedelta(minutes=5)]


def again(source):
    """The records that were put off, as their topic gives them back."""
    return [replace(letter.arrival, retries=letter.arrival.retries + 1) for letter, _ in source.postponed]


def test_a_record_that_fails_is_put_off_once_for_each_delay_and_given_up_at_last(engine):
    declared = booking(fails_on=[2], retry=DELAYS)
    waits, source = [], MemorySource(arrivals(1, 2, 3))
    for _ in DELAYS:
        report = deliver(declared, source, engine)
        assert (report.postponed, report.dead, report.retried) == (1, 0, 0)
        waits += [after for _, after in source.postponed]
        source = MemorySource(again(source))
    report = deliver(declared, source, engine)
    assert (waits, report.postponed, report.dead, source.acknowledged) == (DELAYS, 0, 1, ["2"])
    assert amounts(engine) == [1, 3]


def test_a_record_that_was_put_off_is_handled_once_however_often_it_was_written(engine):
    """A process that was killed between the two wrote it, and then got the record again."""
    declared = booking(fails_on=[2], fails_times=2, retry=DELAYS)
    batch = arrivals(1, 2)
    first = MemorySource(batch, fails={"acknowledge": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(declared, first, engine)
    second = MemorySource(batch)
    report = deliver(declared, second, engine)
    assert (report.duplicates, report.postponed) == (1, 1)
    report = deliver(declared, MemorySource(again(first), again(second)), engine)
    assert (report.handled, report.duplicates) == (1, 1)
    assert amounts(engine) == [1, 2]


def test_a_record_that_could_not_be_put_off_is_not_acknowledged(engine):
    source = MemorySource(arrivals(1, 2), fails={"postpone": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(booking(fails_on=[2], retry=DELAYS), source, engine)
    assert (source.acknowledged, amounts(engine)) == (["1"], [1])


def test_what_cannot_succeed_later_is_given_up_at_once(engine):
    """Data that does not fit, a record without an event, a handler that committed a part of its effects."""
    broken = MemoryArrival(None, "broken", BrokerUnreachable("unreadable", remedy="look"))
    source = MemorySource([broken, *arrivals(1, 2)])
    declared = ending(lambda tx: tx.connection.driver_connection.commit(), at=2, retry=DELAYS)
    assert deliver(declared, source, engine).dead == 2
    assert source.postponed == []
    assert amounts(engine) == [1, 2]


def of_retry(offset, *, partition=1, error=None):
    """A record of a partition of a retry topic, or the client's word that there is no more."""
    return Message(topic="payment.books.retry", partition=partition, offset=offset, error=error)


class PausingConsumer:
    def __init__(self):
        self.paused, self.commits = set(), []

    def commit(self, *, offsets, asynchronous):
        self.commits += [(p.partition, p.offset) for p in offsets]

    def pause(self, partitions):
        self.paused |= {p.partition for p in partitions}

    def resume(self, partitions):
        self.paused -= {p.partition for p in partitions}


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(offset, seconds, *, partition=1):
    retry = None if seconds is None else Retry(NOW + timedelta(seconds=seconds), 1, 1, "payment", 0, 5)
    return KafkaArrival(of_retry(offset, partition=partition), retry=retry)


def held(*each):
    """What is held of records, the clock to move, and the consumer."""
    clock, consumer = [NOW], PausingConsumer()
    holding = Holding(consumer, clock=lambda: clock[0])
    passed = [arrival.offset for arrival in each if holding.passed(arrival)]
    return holding, clock, consumer, passed


def test_records_wait_for_their_time_and_those_behind_them_in_the_partition_too():
    each = [waiting(0, -1), waiting(1, 10), waiting(2, None), waiting(3, 20), waiting(9, 0, partition=2)]
    holding, clock, consumer, passed = held(*each)
    assert (passed, consumer.paused, holding.due()) == ([0, 9], {1}, [])
    clock[0] += timedelta(seconds=10)
    assert ([a.offset for a in holding.due()], consumer.paused) == ([1, 2], {1})
    clock[0] += timedelta(seconds=10)
    assert ([a.offset for a in holding.due()], consumer.paused, holding.due()) == ([3], set(), [])


def test_what_is_held_of_a_partition_that_was_taken_away_is_forgotten():
    holding, clock, _, _ = held(waiting(1, 10), waiting(5, 10, partition=2))
    holding.drop(lambda arrival: arrival.message.partition() == 2)
    clock[0] += timedelta(seconds=10)
    assert [a.offset for a in holding.due()] == [5]


def test_what_a_record_of_a_retry_topic_says_of_itself_is_read_as_it_was_written():
    retry = Retry(NOW, 2, 3, "payment", 4, 17)
    assert retry_of([("ce_id", b"x"), *retry.headers()]) == retry
    assert retry_of([("ce_id", b"x")]) is None


HEADERS = dict(Retry(NOW, 2, 3, "payment", 4, 17).headers())
MISSTATED = {"due": (b"tomorrow", b"2026-01-01T00:00:00", None), "number": (b"x",), "offset": (b"",)}


@each_row(
    ("headers", "words"),
    [
        *((HEADERS | {f"retry_{name}": value}, r"isoformat|has no zone|invalid literal")
          for name, values in MISSTATED.items() for value in values),
        *(({key: value for key, value in HEADERS.items() if key != f"retry_{missing}"}, f"retry_{missing}")
          for missing in ("due", "number", "attempts", "topic", "partition", "offset")),
    ],
)  # fmt: skip
def test_a_record_that_misstates_when_it_is_due_or_says_only_a_part_of_it_is_refused(headers, words):
    with pytest.raises(ValueError, match=words):
        retry_of(headers.items())


def reading(*, due):
    """A source that has partitions 1 and 2 of a retry topic, whose records are due in so many seconds."""
    source, consumer = object.__new__(KafkaSource), PausingConsumer()
    retry = Retry(NOW + timedelta(seconds=due), 1, 1, "payment", 0, 5)
    source._consumer, source._places, source._paused = consumer, Places(consumer), True
    source._holding = Holding(consumer, clock=lambda: NOW)
    source._following = SimpleNamespace(origin=lambda topic: "payment", is_retried=lambda topic: True)
    source._reader = SimpleNamespace(read=lambda message, topic, again: KafkaArrival(message, retry=retry, topic=topic))
    source._places.given([TopicPartition("payment.books.retry", 1), TopicPartition("payment.books.retry", 2)])
    return source, consumer


@pytest.mark.parametrize(("due", "arrived", "committed"), [(10, 0, []), (-10, 1, [(1, 8)])])
def test_the_end_of_a_partition_whose_record_waits_moves_no_offset_behind_it(due, arrived, committed):
    source, consumer = reading(due=due)
    arrivals = source._arrivals(of_retry(7))
    source._arrivals(of_retry(8, error=KafkaError(KafkaError._PARTITION_EOF)))
    source._places.commit_idle()
    assert (len(arrivals), consumer.commits) == (arrived, committed)


def test_a_partition_that_waits_stays_paused_when_the_handler_is_through():
    source, consumer = reading(due=10)
    source._arrivals(of_retry(7))
    consumer.pause(source._places.owned())  # while a handler was slow
    source._resume()
    assert consumer.paused == {1}
