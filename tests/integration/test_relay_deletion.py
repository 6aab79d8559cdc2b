"""Deleted streams on the relay's road: the same records without values, each once, whatever the topic ended with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from eventstore import ANY, SqlEventStore
from eventstore.errors import RelayError
from eventstore.kafka.consumer import read_range
from eventstore.relay import Relay
from eventstore.settings import Settings
from eventstore.topics import DELETED_TYPE, TopicRecord, message_key, partition_of
from tests.crates import Crate, crate_store, topic_of
from tests.errors import raises

GONE, KEPT = "crate-gone", "crate-kept"


@pytest.fixture
def store(database: Callable[[], str]) -> Iterator[SqlEventStore]:
    store = crate_store(database())
    yield store
    store.close()


@pytest.fixture
def relay_once(store: SqlEventStore, settings: Settings) -> Callable[[], int]:
    """Relay what waits, by a relay that knows nothing of those before it; returns how many events that were."""
    return lambda: Relay(store, settings).run(stop=threading.Event(), once=True).events


def records(store: SqlEventStore, settings: Settings) -> list[TopicRecord]:
    return list(read_range(settings, topic_of(store)))


def packed(store: SqlEventStore, stream: str, count: int) -> None:
    store.append(stream, [Crate.Filled(grams=grams) for grams in range(count)], expected=ANY)


def test_a_deletion_follows_its_events_under_their_keys_and_in_their_partition(
    store: SqlEventStore, settings: Settings, relay_once: Callable[[], int]
) -> None:
    """The topic ends with what is deleted, so its end has to be found by the places that deleted events had."""
    packed(store, KEPT, 1)
    packed(store, GONE, 3)
    assert relay_once() == 4
    store.delete_stream(GONE, expected=2)
    assert relay_once() == 4
    assert relay_once() == 0
    found = [record for record in records(store, settings) if (record.key or b"").startswith(GONE.encode())]
    keys = [message_key(GONE, version).encode() for version in (0, 1, 2, 0, 1, 2, 3)]
    assert [record.key for record in sorted(found, key=lambda record: record.offset)] == keys
    assert [record.value is None for record in sorted(found, key=lambda record: record.offset)] == [False] * 3 + [
        True
    ] * 4
    partitions = store.categories()[0].partitions
    assert {record.partition for record in found} == {partition_of(GONE, partitions)}
    assert {dict(record.headers)["ce_type"] for record in found if record.value is None} == {DELETED_TYPE.encode()}


def test_without_the_places_of_deleted_events_the_end_of_the_topic_would_not_be_known(
    store: SqlEventStore, relay_once: Callable[[], int]
) -> None:
    packed(store, GONE, 2)
    relay_once()
    store.delete_stream(GONE, expected=1)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("delete from deleted_events")
    with raises(RelayError, code="topic-not-relayed"):
        relay_once()
