"""Topics, offsets, schemas and records on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from eventstore import Aggregate, Settings, event
from eventstore.errors import BrokerUnreachable, NotFramedAvro, TopicMismatch, TopicMissing
from eventstore.kafka.admin import OffsetReader, beginning_offsets, end_offsets, ensure_topics
from eventstore.kafka.consumer import RangeReader, read_range, read_schemas
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import TopicSpec, branch_topic, event_topic, partition_of
from tests.waiting import wait_until


class Order(Aggregate):
    @event
    class Placed:
        sku: str

    @event
    class Shipped:
        carrier: str


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


def test_topics_that_exist_are_checked_and_left_alone(settings: Settings, topic: str) -> None:
    assert ensure_topics(settings, [event_topic(topic, partitions=4)]) == []


def test_another_partition_count_or_policy_is_a_mismatch(settings: Settings, topic: str) -> None:
    with pytest.raises(TopicMismatch, match="has 4 partitions, 3 are required"):
        ensure_topics(settings, [event_topic(topic, partitions=3)])
    with pytest.raises(TopicMismatch, match=r"cleanup\.policy=compact, delete is required"):
        ensure_topics(settings, [branch_topic(topic, partitions=4)])


def test_python_places_keys_where_java_would(settings: Settings, topic: str, producer: RecordProducer) -> None:
    keys = _keys(200)
    producer.send(_records(topic, keys))
    placed = {(record.key or b"").decode(): record.partition for record in read_range(settings, topic)}
    assert placed == {key: partition_of(key, 4) for key in keys}


def test_a_record_keeps_headers_nulls_and_the_partition_it_was_given(
    settings: Settings, topic: str, producer: RecordProducer
) -> None:
    headers = (("ce_id", b"1"), ("empty", None), ("ce_id", b"2"))
    producer.send([OutgoingRecord(topic=topic, key=b"k", value=None, headers=headers, partition=3)])
    (record,) = read_range(settings, topic)
    assert (record.partition, record.key, record.value, record.headers) == (3, b"k", None, headers)
    assert record.place == f"{topic}[3]@0"


def test_offsets_end_before_an_open_transaction(
    settings: Settings, topic: str, producer: RecordProducer, transactional: Producer
) -> None:
    producer.send([OutgoingRecord(topic=topic, key=b"k", value=b"1", partition=0)])
    transactional.begin_transaction()
    transactional.produce(topic, b"2", b"k", partition=0)
    transactional.flush(10)
    with OffsetReader(settings) as offsets:
        assert offsets.end_offsets([topic])[topic] == {0: 1, 1: 0, 2: 0, 3: 0}
        transactional.commit_transaction(30)
        wait_until(lambda: offsets.end_offsets([topic])[topic][0] == 3)
    assert [record.value for record in read_range(settings, topic)] == [b"1", b"2"]


def test_an_aborted_transaction_is_read_over(settings: Settings, topic: str, transactional: Producer) -> None:
    transactional.begin_transaction()
    transactional.produce(topic, b"never", b"k", partition=0)
    transactional.flush(10)
    transactional.abort_transaction(30)
    wait_until(lambda: end_offsets(settings, [topic])[topic][0] == 2)
    assert list(read_range(settings, topic)) == []


def test_a_range_is_read_from_its_start_to_its_end(settings: Settings, topic: str, producer: RecordProducer) -> None:
    producer.send([OutgoingRecord(topic=topic, key=b"k", value=b"%d" % n, partition=1) for n in range(10)])
    part = read_range(settings, topic, start={1: 3}, end={1: 6})
    assert [record.value for record in part] == [b"3", b"4", b"5"]
    assert beginning_offsets(settings, [topic])[topic] == {0: 0, 1: 0, 2: 0, 3: 0}


def test_the_schemas_topic_is_read_whole(settings: Settings, producer: RecordProducer) -> None:
    schemas = f"schemas.{uuid.uuid4().hex[:8]}"
    ensure_topics(settings, [replace(event_topic(schemas, partitions=1))])
    kinds = [kind.registered for kind in Order.event_types.values()]
    producer.send(OutgoingRecord(topic=schemas, key=str(kind.id).encode(), value=kind.to_json()) for kind in kinds)
    assert read_schemas(settings, topic=schemas) == {kind.id: kind for kind in kinds}
    producer.send([OutgoingRecord(topic=schemas, key=b"x", value=b"no json")])
    with pytest.raises(NotFramedAvro, match="not a registered schema"):
        read_schemas(settings, topic=schemas)


def test_a_missing_topic_is_named(settings: Settings, producer: RecordProducer) -> None:
    with pytest.raises(TopicMissing, match=r"'no\.such'"):
        end_offsets(settings, ["no.such"])
    with pytest.raises(TopicMissing, match=r"'no\.such'"):
        next(read_range(settings, "no.such"))
    with pytest.raises(TopicMissing):
        producer.send(_records("no.such", ["k"]))


def test_an_unreachable_broker_is_named_before_the_deadline() -> None:
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
