"""MirrorMaker 2 between two brokers: a topic, the offsets of its group, heartbeats, all by our declarations."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import stamina
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from cdc import ConnectClient, MirrorCheckpoint, MirrorHeartbeat, MirrorSource, apply_connector
from eventstore.kafka.admin import cleanup_policies, end_offsets, ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import group_offsets
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, changelog_topic
from tests.integration.second_broker import second_broker
from tests.waiting import wait_until

TOPIC, GROUP, PARTITIONS, RECORDS = "orders", "billing", 2, 60


@pytest.fixture(scope="module")
def there() -> Iterator[Settings]:
    """A second broker with a topic, some of whose records were taken back, and a group that has read all of it."""
    with second_broker() as settings:
        ensure_topics(settings, [changelog_topic(TOPIC, partitions=PARTITIONS)])
        _produce(settings, "aborted")
        _produce(settings, "first")
        _read_all(settings)
        yield settings


@pytest.fixture(scope="module")
def clusters(there: Settings, settings: Settings) -> dict[str, str]:
    """What all connectors of the pair say."""
    return {
        "source_alias": f"s{uuid.uuid4().hex[:6]}",
        "target_alias": "here",
        "source_bootstrap_servers": there.kafka.bootstrap_servers,
        "target_bootstrap_servers": settings.kafka.bootstrap_servers,
    }


@pytest.fixture(scope="module")
def copied(connect: ConnectClient, clusters: dict[str, str]) -> Iterator[str]:
    """The copied topic's name; mirror and heartbeat run, the checkpoint connector does not yet."""
    alias = clusters["source_alias"]
    mirror = MirrorSource(name=f"{alias}-mirror", topics=(TOPIC,), **clusters)
    heartbeat = MirrorHeartbeat(name=f"{alias}-heartbeat", **clusters)
    for connector in (mirror, heartbeat):
        assert apply_connector(connect, connector).created
        assert apply_connector(connect, connector).was_no_op
    yield f"{alias}.{TOPIC}"
    for connector in (mirror.name, heartbeat.name):
        connect.delete(connector)


def test_a_topic_is_copied_record_by_record_and_with_its_policy(copied, there, settings, records_of):
    def told(records: list[TopicRecord]) -> list[Any]:
        return sorted((r.partition, r.key, r.value, r.headers) for r in records)

    copies = records_of(copied, count=RECORDS)

    assert told(copies) == told(read_range(there, TOPIC))
    assert len(copies) == RECORDS
    assert cleanup_policies(settings, [copied]) == {copied: "compact"}


def test_heartbeats_arrive(copied, clusters, records_of):
    alias = clusters["source_alias"].encode()

    def beats() -> int:
        return sum(alias in (record.key or b"") for record in records_of("heartbeats", count=1))

    wait_until(lambda: beats() >= 2, what="two heartbeats")


@pytest.mark.faults
def test_a_group_that_moves_reads_on_where_it_was_if_there_is_a_checkpoint_connector(
    copied, connect, clusters, settings, there, records_of
):
    def moved() -> dict[int, int]:
        return group_offsets(settings, copied, group=GROUP)

    records_of(copied, count=RECORDS)
    assert moved() == {}
    checkpoint = MirrorCheckpoint(
        name=f"{clusters['source_alias']}-checkpoint", groups=(GROUP,), interval_seconds=1, **clusters
    )
    apply_connector(connect, checkpoint)
    rounds = itertools.count(2)

    def unread() -> int:
        return sum(record.offset >= moved()[record.partition] for record in read_range(settings, copied))

    def reads_on() -> bool:
        """What a group read before the connector looked at it first is not copied: so it reads once more."""
        _produce(there, "more")
        _read_all(there)
        records_of(copied, count=next(rounds) * RECORDS)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(moved()) == PARTITIONS and unread() == 0, within=15)
            return True
        return False

    wait_until(reads_on, what="the group's offsets at the target")
    connect.delete(checkpoint.name)


def _produce(settings: Settings, what: str) -> None:
    producer = Producer({"bootstrap.servers": settings.kafka.bootstrap_servers, "transactional.id": "orders"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(RECORDS):
        partition, headers = number % PARTITIONS, [("trace", b"\x00\xff")]
        producer.produce(TOPIC, key=f"k{number}", value=f"{what} {number}", partition=partition, headers=headers)
    producer.flush()
    producer.abort_transaction() if what == "aborted" else producer.commit_transaction()


def _read_all(settings: Settings) -> None:
    ends = end_offsets(settings, [TOPIC])[TOPIC]
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": GROUP})
    places = [TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
    # A broker that has just started refuses until it has loaded what it knows of the groups.
    for attempt in stamina.retry_context(on=KafkaException, attempts=None, timeout=60):
        with attempt:
            consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
