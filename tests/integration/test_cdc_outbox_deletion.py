"""Streams deleted in a real store: what the real Debezium makes of it, and what a subscriber sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc import apply, prepare_topics
from eventstore import ANY, Aggregate, SqlEventStore, event, open_subscriber, subscription
from eventstore.kafka.consumer import read_range
from eventstore.settings import Settings
from eventstore.topics import DELETED_TYPE, TopicRecord, message_key, partition_of
from tests.integration.delivering import deliver

KEPT, BEFORE, AFTER = "box-kept", "box-é☃ @%s", "box-after"
PARTITIONS = 3


class Box(Aggregate):
    @event
    class Packed:
        number: int


def packed(*numbers: int) -> list[Box.Packed]:
    return [Box.Packed(number=number) for number in numbers]


class Deleted:
    """A store from which streams were deleted before its connector was, and while it ran."""

    def __init__(self, captured: Any, connect: Any, settings: Settings) -> None:
        self.store = SqlEventStore(captured.engine)
        self.store.create_tables()
        self.topic = f"box_{captured.name}"
        self.store.declare_category("box", partitions=PARTITIONS, topic=self.topic)
        self.store.register(Box)
        for stream in (KEPT, BEFORE):
            self.store.append(stream, packed(1, 2), expected=ANY)
        self.store.delete_stream(BEFORE, expected=1)
        connector = captured.prepared(captured.outbox())
        prepare_topics(settings, [(self.topic, PARTITIONS)])
        apply(connect, connector, source=self.store.engine)
        self.store.append(AFTER, packed(3, 4, 5), expected=ANY)
        self.store.delete_stream(AFTER, expected=2)
        self.store.append(KEPT, packed(6), expected=1)


@pytest.fixture(scope="module")
def deleted(captured: Callable[[], Any], connect: Any, settings: Settings) -> Deleted:
    return Deleted(captured(), connect, settings)


@pytest.fixture(scope="module")
def records(deleted: Deleted, records_of: Callable[..., list[TopicRecord]]) -> dict[str, list[TopicRecord]]:
    """By key, in the order of their offsets: 3 kept, 3 of the early deletion, 3 events and 4 of the late one."""
    by_key: dict[str, list[TopicRecord]] = {}
    for record in sorted(records_of(deleted.topic, count=13), key=lambda record: record.offset):
        by_key.setdefault((record.key or b"").decode(), []).append(record)
    return by_key


def test_every_event_of_a_deleted_stream_is_followed_by_a_record_without_a_value(
    records: dict[str, list[TopicRecord]],
) -> None:
    for version in range(3):
        there, gone = records[message_key(AFTER, version)]
        assert (there.value is None, gone.value) == (False, None)
        assert there.partition == gone.partition == partition_of(AFTER, PARTITIONS)
        assert there.offset < gone.offset
    (behind,) = records[message_key(AFTER, 3)]
    assert (behind.value, behind.partition) == (None, partition_of(AFTER, PARTITIONS))


def test_of_what_was_deleted_before_the_connector_only_deletions_are_published(
    records: dict[str, list[TopicRecord]],
) -> None:
    for version in range(3):
        (gone,) = records[message_key(BEFORE, version)]
        assert (gone.value, gone.partition) == (None, partition_of(BEFORE, PARTITIONS))


def test_such_a_record_says_which_stream_and_nothing_of_what_was_in_it(records: dict[str, list[TopicRecord]]) -> None:
    headers = dict(records[message_key(AFTER, 0)][-1].headers)
    assert (headers["ce_type"], headers["ce_subject"]) == (DELETED_TYPE.encode(), AFTER.encode())
    assert headers["ce_id"] != dict(records[message_key(AFTER, 0)][0].headers)["ce_id"]


def test_other_streams_are_as_they_were(records: dict[str, list[TopicRecord]]) -> None:
    assert [len(records[message_key(KEPT, version)]) for version in range(3)] == [1, 1, 1]
    assert all(records[message_key(KEPT, version)][0].value for version in range(3))


def test_a_subscriber_passes_over_records_without_a_value(
    deleted: Deleted, records: dict[str, list[TopicRecord]], settings: Settings
) -> None:
    seen: list[int] = []

    def note(event: Box.Packed) -> None:
        seen.append(event.number)

    noting = subscription(deleted.topic, group="boxes")(note)
    with open_subscriber(noting, settings=settings) as subscriber:
        report = deliver(subscriber, records=13)
    assert sorted(seen) == [1, 2, 3, 4, 5, 6]  # what is not compacted yet is still handled
    assert (report.handled, report.dead) == (6, 0)
    assert list(read_range(settings, noting.dead_letter_topic)) == []
