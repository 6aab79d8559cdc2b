"""Topics, offsets, schemas and records on a real broker."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from eventstore import ANY, Metadata, Settings, SqlEventStore
from eventstore.errors import BrokerUnreachable, NotFound, NotFramedAvro, TopicMismatch, TopicMissing
from eventstore.inspection.selection import Entry, Selection
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.tracing import trace
from eventstore.kafka.admin import OffsetReader, end_offsets, ensure_topics
from eventstore.kafka.consumer import RangeReader, read_range, read_schemas
from eventstore.kafka.entries import TopicLog
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import TopicSpec, branch_topic, event_topic, partition_of
from factfold.cli.entry import application
from tests.errors import raises
from tests.integration.payments_topic import PaymentsTopic
from tests.ledger import Payment
from tests.orders import Order
from tests.waiting import wait_until


@pytest.fixture
def topic(settings: Settings) -> str:
    name = f"order.{uuid.uuid4().hex[:8]}"
    assert ensure_topics(settings, [event_topic(name, partitions=4)]) == [name]
    return name


@pytest.fixture
def producer(settings: Settings) -> RecordProducer:
    return RecordProducer(settings)


@pytest.fixture
def transactional(settings: Settings) -> Iterator[Producer]:
    producer = Producer({**settings.kafka.librdkafka_producer(), "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    yield producer
    producer.flush(10)


def _keys(count: int) -> list[str]:
    return [f"order-{number}" for number in range(count)]


def _records(topic: str, keys: list[str]) -> list[OutgoingRecord]:
    return [OutgoingRecord(topic=topic, key=key.encode(), value=key.encode()) for key in keys]


def test_topics_that_exist_are_checked_and_left_alone(settings, topic):
    assert ensure_topics(settings, [event_topic(topic, partitions=4)]) == []


def test_another_partition_count_or_policy_is_a_mismatch(settings, topic):
    with pytest.raises(TopicMismatch, match="has 4 partitions, 3 are required"):
        ensure_topics(settings, [event_topic(topic, partitions=3)])
    with pytest.raises(TopicMismatch, match=r"cleanup\.policy=compact, delete is required"):
        ensure_topics(settings, [branch_topic(topic, partitions=4)])


def test_python_places_keys_where_java_would(settings, topic, producer):
    keys = _keys(200)
    producer.send(_records(topic, keys))
    placed = {(record.key or b"").decode(): record.partition for record in read_range(settings, topic)}
    assert placed == {key: partition_of(key, 4) for key in keys}


def test_a_record_keeps_headers_nulls_and_the_partition_it_was_given(settings, topic, producer):
    headers = (("ce_id", b"1"), ("empty", None), ("ce_id", b"2"))
    producer.send([OutgoingRecord(topic=topic, key=b"k", value=None, headers=headers, partition=3)])
    (record,) = read_range(settings, topic)
    assert (record.partition, record.key, record.value, record.headers) == (3, b"k", None, headers)
    assert record.place == f"{topic}[3]@0"


def test_offsets_end_before_an_open_transaction(settings, topic, producer, transactional):
    producer.send([OutgoingRecord(topic=topic, key=b"k", value=b"1", partition=0)])
    transactional.begin_transaction()
    transactional.produce(topic, b"2", b"k", partition=0)
    transactional.flush(10)
    with OffsetReader(settings) as offsets:
        assert offsets.end_offsets([topic])[topic] == {0: 1, 1: 0, 2: 0, 3: 0}
        transactional.commit_transaction(30)
        wait_until(lambda: offsets.end_offsets([topic])[topic][0] == 3)
    assert [record.value for record in read_range(settings, topic)] == [b"1", b"2"]


def test_an_aborted_transaction_is_read_over(settings, topic, transactional):
    transactional.begin_transaction()
    transactional.produce(topic, b"never", b"k", partition=0)
    transactional.flush(10)
    transactional.abort_transaction(30)
    wait_until(lambda: end_offsets(settings, [topic])[topic][0] == 2)
    assert list(read_range(settings, topic)) == []


def test_a_range_is_read_from_its_start_to_its_end(settings, topic, producer):
    producer.send([OutgoingRecord(topic=topic, key=b"k", value=b"%d" % n, partition=1) for n in range(10)])
    part = read_range(settings, topic, start={1: 3}, end={1: 6})
    assert [record.value for record in part] == [b"3", b"4", b"5"]
    with OffsetReader(settings) as offsets:
        assert offsets.beginning_offsets([topic])[topic] == {0: 0, 1: 0, 2: 0, 3: 0}


def test_the_schemas_topic_is_read_whole(settings, producer):
    schemas = f"schemas.{uuid.uuid4().hex[:8]}"
    ensure_topics(settings, [replace(event_topic(schemas, partitions=1))])
    kinds = [kind.registered for kind in Order.event_types.values()]
    producer.send(OutgoingRecord(topic=schemas, key=str(kind.id).encode(), value=kind.to_json()) for kind in kinds)
    assert read_schemas(settings, topic=schemas) == {kind.id: kind for kind in kinds}
    producer.send([OutgoingRecord(topic=schemas, key=b"x", value=b"no json")])
    with pytest.raises(NotFramedAvro, match="not a registered schema"):
        read_schemas(settings, topic=schemas)


def test_a_missing_topic_is_named(settings, producer):
    with pytest.raises(TopicMissing, match=r"'no\.such'"):
        end_offsets(settings, ["no.such"])
    with pytest.raises(TopicMissing, match=r"'no\.such'"):
        next(read_range(settings, "no.such"))
    with pytest.raises(TopicMissing):
        producer.send(_records("no.such", ["k"]))


def test_an_unreachable_broker_is_named_before_the_deadline():
    nowhere, started = Settings.for_broker("127.0.0.1:1"), time.monotonic()
    with (
        OffsetReader(nowhere, deadline=2) as offsets,
        pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"),
    ):
        offsets.end_offsets(["any"])
    with pytest.raises(BrokerUnreachable):
        ensure_topics(nowhere, [TopicSpec("any", 1)], deadline=2)
    with pytest.raises(BrokerUnreachable):
        RecordProducer(nowhere, deadline=2).send(_records("any", ["k"]))
    assert time.monotonic() - started < 30


def test_a_reader_whose_client_does_not_close_is_left_to_itself(settings, monkeypatch, capsys):
    """Librdkafka stands in some of its closes after offsets that were out of range."""
    monkeypatch.setattr("eventstore.kafka.consumer._CLOSING_SECONDS", 0.5)
    held, reader = Event(), RangeReader(settings)
    consumer, reader._consumer = reader._consumer, SimpleNamespace(close=held.wait)
    reader.close()
    assert "did not close" in capsys.readouterr().out
    held.set()
    consumer.close()


# ---- Records of a topic and events of PostgreSQL, looked at without a group


@pytest.fixture
def log(payments: PaymentsTopic) -> Iterator[TopicLog]:
    with TopicLog(payments.name, payments.settings) as opened:
        yield opened


def amounts(entries: list[Entry]) -> list[int]:
    return [entry.data["amount"] for entry in entries]


def test_the_last_records_of_all_partitions_are_shown_in_the_order_of_their_times_and_chosen_by_them(payments, log):
    for amount in range(6):
        payments.receive([amount])
        sleep(0.002)  # times of records are whole milliseconds
    assert amounts(log.last(Selection(), limit=4)) == [2, 3, 4, 5]
    assert amounts(log.last(Selection(), limit=0)) == []
    now = datetime.now(UTC)
    assert len(log.last(Selection(since=now - timedelta(hours=1)), limit=9)) == 6
    assert log.last(Selection(since=now + timedelta(hours=1)), limit=9) == []
    assert log.last(Selection(until=now - timedelta(hours=1)), limit=9) == []


def test_records_behind_many_others_are_reached(payments, log):
    """Windows before the end grow until there are enough, or the partition's beginning is reached."""
    wanted = payments.record(Payment.Refunded(amount=7), partition=1, ce_correlationid="talk")
    payments.put([wanted])
    payments.receive(range(300), partition=1)
    for selection in (
        Selection(types=("payment.refunded",)),
        Selection(streams=("payment-7",), types=("payment.refunded",)),
        Selection(correlation_id="talk"),
    ):
        (found,) = log.last(selection, limit=5)
        assert (found.event and found.event.type, found.data) == ("payment.refunded", {"amount": 7})
        assert amounts(list(log.read(selection))) == [7]


def test_a_topic_is_followed_from_its_last_records_on(payments, log):
    payments.receive([1, 2], partition=0)
    stop = Event()
    followed = log.follow(Selection(types=("payment.received",)), limit=1, stop=stop)
    assert amounts([next(followed)]) == [2]
    payments.receive([3, 4], partition=0)
    assert amounts(list(itertools.islice(followed, 2))) == [3, 4]
    stop.set()
    assert list(followed) == []


def test_a_record_is_found_by_its_place_and_an_event_by_its_id(payments, log):
    (sent,) = payments.receive([5], partition=2)
    assert log.at(2, 0).data == {"amount": 5}
    found = log.find(UUID(dict(sent.headers)["ce_id"].decode()))  # type: ignore[union-attr]
    assert found is not None
    assert found.place == f"{payments.name}[2]@0"
    for partition, offset in ((2, 1), (9, 0)):
        with raises(NotFound, code="events-not-found", match="holds no record"):
            log.at(partition, offset)
    assert log.find(UUID(int=0)) is None


def test_the_commands_read_topics(payments, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", payments.settings.kafka.bootstrap_servers)
    payments.put(
        [payments.record(Payment.Received(amount=3), partition=1, ce_correlationid="talk", ce_causationid="c")]
    )

    def run(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(application(), [*words, "--topic", payments.name, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    assert run("events", "tail")["data"] == {"amount": 3}
    assert run("events", "show", "1@0")["headers"]["ce_correlationid"] == "talk"
    assert [step["kind"] for step in run("trace", "talk")["steps"]] == ["command", "event"]


def test_postgresql_selects_and_follows_as_sqlite_does(database):
    with SqlEventStore(database()) as store:
        store.create_tables()
        for amount in range(3):
            store.append(f"payment-{amount}", [Payment.Received(amount=amount)], expected=ANY,
                         metadata=Metadata(correlation_id=f"talk {amount % 2}"))  # fmt: skip
        log, now = StoreLog(store), datetime.now(UTC)
        assert amounts(log.last(Selection(until=now), limit=2)) == [1, 2]
        assert amounts(log.last(Selection(since=now + timedelta(hours=1)), limit=2)) == []
        assert amounts(list(log.read(Selection(streams=("payment-0", "payment-2"), from_version=0)))) == [0, 2]
        assert [step.kind for step in trace("talk 0", [log]).steps] == ["event", "event"]
        stop = Event()
        followed = log.follow(Selection(correlation_id="talk 1"), limit=5, stop=stop)
        assert amounts([next(followed)]) == [1]
        store.append(
            "payment-9", [Payment.Received(amount=9)], expected=ANY, metadata=Metadata(correlation_id="talk 1")
        )
        assert amounts([next(followed)]) == [9]
        stop.set()
        assert list(followed) == []
