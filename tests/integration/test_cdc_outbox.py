"""Events and deletions of a real store, published by the real Debezium. Headers and order follow, on both roads."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from cdc import apply_connector, prepare_topics
from cdc.errors import ConnectorFailed
from cdc.operating.control import Deadline, check
from eventstore import ANY, Aggregate, Metadata, SqlEventStore, event
from eventstore.fields.serialization import AvroDecoder
from eventstore.kafka.consumer import read_range, read_schemas
from eventstore.relay import Relay
from eventstore.settings import Settings
from eventstore.store import NewEvent, RecordedCommand
from eventstore.topics import DELETED_TYPE, SCHEMAS_TOPIC, TopicRecord, message_key, partition_of, recorded_event

KEPT, BEFORE, AFTER = "box-kept", "box-é☃ @%s", "box-after"
PARTITIONS = 3
COMMANDER = "the one who commands"
METADATA = Metadata(correlation_id="c-1", causation_id="c-0", traceparent="00-0af7-b7ad-01")


class Box(Aggregate):
    @event
    class Packed:
        number: int


class Outbox:
    """A store with a stream from before its connector, and streams deleted before it and while it ran."""

    def __init__(self, captured: Any, connect: Any, settings: Settings) -> None:
        self.database, self.topic = captured, f"box_{captured.name}"
        self.store = SqlEventStore(captured.engine)
        self.store.create_tables()
        self.store.declare_category("box", partitions=PARTITIONS, topic=self.topic)
        self.store.register(Box)
        for stream in (KEPT, BEFORE):
            self.pack(stream, 1, 2)
        self.store.delete_stream(BEFORE, expected=1)
        self.connector = captured.prepared(captured.outbox())
        prepare_topics(settings, [(self.topic, PARTITIONS)])
        apply_connector(connect, self.connector, source=self.store.engine)
        self.pack(AFTER, 3, 4, 5)
        self.store.delete_stream(AFTER, expected=2)
        self.pack(KEPT, 6, metadata=METADATA)

    def pack(self, stream: str, *numbers: int, metadata: Metadata | None = None) -> None:
        events = [Box.Packed(number=number) for number in numbers]
        self.store.append(stream, events, expected=ANY, metadata=metadata)


@pytest.fixture(scope="module")
def outbox(captured: Callable[[], Any], connect: Any, settings: Settings) -> Outbox:
    return Outbox(captured(), connect, settings)


@pytest.fixture(scope="module")
def records(outbox: Outbox, records_of: Callable[..., list[TopicRecord]]) -> dict[str, list[TopicRecord]]:
    """By key, in the order of their offsets: 3 kept, 3 of the early deletion, 3 events and 4 of the late one."""
    by_key: dict[str, list[TopicRecord]] = {}
    for record in sorted(records_of(outbox.topic, count=13), key=lambda record: record.offset):
        by_key.setdefault((record.key or b"").decode(), []).append(record)
    return by_key


def test_schemas_arrive_in_their_topic_for_a_reader_without_the_store(records, records_of, settings):
    assert {record.partition for record in records_of(SCHEMAS_TOPIC, count=1)} == {0}
    schemas = read_schemas(settings)
    decoder = AvroDecoder(lambda schema_id: schemas[schema_id])
    events = [recorded_event(records[message_key(KEPT, version)][0], decoder) for version in range(3)]
    assert [event.data["number"] for event in events] == [1, 2, 6]
    assert events[-1].metadata == METADATA


def test_every_event_of_a_deleted_stream_is_followed_by_a_record_without_a_value(records):
    for version in range(3):
        there, deleted = records[message_key(AFTER, version)]
        assert (there.value is None, deleted.value) == (False, None)
        assert there.partition == deleted.partition == partition_of(AFTER, PARTITIONS)
        headers = dict(deleted.headers)
        assert (headers["ce_type"], headers["ce_subject"]) == (DELETED_TYPE.encode(), AFTER.encode())
        assert headers["ce_id"] != dict(there.headers)["ce_id"]
    (behind,) = records[message_key(AFTER, 3)]
    assert (behind.value, behind.partition) == (None, partition_of(AFTER, PARTITIONS))


def test_of_a_stream_deleted_before_the_connector_only_deletions_are_published(records):
    found = [records[message_key(BEFORE, version)] for version in range(3)]
    assert [[(one.value, one.partition) for one in each] for each in found] == [
        [(None, partition_of(BEFORE, PARTITIONS))]
    ] * 3


@pytest.mark.usefixtures("records")
def test_an_updated_event_stops_the_connector_until_it_is_declared_lenient(outbox, connect, records_of):
    name = outbox.connector.name
    outbox.database.run("UPDATE events SET type = type WHERE position = 1")
    with pytest.raises(ConnectorFailed, match="Unexpected update message") as failure:
        Deadline(name, 20).wait(lambda: check(connect.status(name)) and None, goal="failed")
    assert len(failure.value.trace) == 2
    with pytest.raises(ConnectorFailed):
        apply_connector(connect, outbox.connector, source=outbox.store.engine)
    lenient = outbox.database.outbox(on_update="warn")
    assert apply_connector(connect, lenient, source=outbox.store.engine).changed
    outbox.pack(KEPT, 7)
    assert len(records_of(outbox.topic, count=14)) == 14


# ---- Two roads from one store to Kafka: the records of the relay are those of the real Debezium, byte by byte


# Names and values that a spelling of its own would give away.
STREAMS = ("a", "b", "é☃ @%s", 'it\'s "d"', "x" * 200)
EVERYTHING = Metadata(correlation_id="c-1", causation_id='c "0" ü', traceparent="00-0af7-b7ad-01")
PARTIAL = Metadata(correlation_id="")


class Pallet(Aggregate):
    @event
    class Loaded:
        kilos: int
        label: str


@pytest.fixture(scope="module")
def roads(captured, connect, settings) -> dict[str, Any]:
    """One history: the relay's records; the topic of Debezium's, which come from a copy of the store."""
    topic = f"pallet.{uuid.uuid4().hex[:8]}"
    relayed = captured()
    with SqlEventStore(relayed.engine, source="/depot ü") as store:
        store.create_tables()
        store.declare_category("pallet", partitions=PARTITIONS, topic=topic)
        store.register(Pallet)
        append(store, None, PARTIAL)
        assert Relay(store, settings).run(stop=threading.Event(), once=True).events == 30
        copied = captured()
        copy_of_store(relayed.engine, copied.engine, topic=f"{topic}.debezium")
        prepare_topics(settings, [(f"{topic}.debezium", PARTITIONS)])
        apply_connector(connect, copied.prepared(copied.outbox()), source=copied.engine)
        # These come from the log, the others came from the initial snapshot.
        append(store, EVERYTHING, None)
        assert Relay(store, settings).run(stop=threading.Event(), once=True).events == 30
        copy_of_store(relayed.engine, copied.engine, topic=f"{topic}.debezium")
        schema = store.schemas()[0].id
    records = list(read_range(settings, topic))
    return {"relay": records, "topic": f"{topic}.debezium", "schema": schema, "copied": copied}


@pytest.fixture(scope="module")
def by_debezium(roads, records_of) -> list[TopicRecord]:
    return records_of(roads["topic"], count=60)


def append(store: SqlEventStore, *metadata: Metadata | None) -> None:
    for told in metadata:
        for stream in STREAMS:
            events: list[object] = [Pallet.Loaded(kilos=kilos, label=stream) for kilos in range(3)]
            events[0] = NewEvent(events[0], command=RecordedCommand("pallet.load", {"by": COMMANDER}))
            store.append(f"pallet-{stream}", events, expected=ANY, metadata=told)


def copy_of_store(source: Any, target: Any, *, topic: str) -> None:
    """Copy the rows that are not there yet, as they are but for the topic of the events."""
    with SqlEventStore(target) as other:
        other.create_tables()
        other.declare_category("pallet", partitions=PARTITIONS, topic=topic)
        events, schemas = other.tables.events, other.tables.schemas
        with source.connect() as old, target.begin() as new:
            reached = new.scalar(select(func.coalesce(func.max(events.c.position), 0)))
            rows = old.execute(select(events).where(events.c.position > reached).order_by(events.c.position)).mappings()
            if reached == 0:
                new.execute(insert(schemas), [dict(row) for row in old.execute(select(schemas)).mappings()])
            for row in rows:
                new.execute(insert(events).values({**row, "topic": topic}))


def in_order(records: list[TopicRecord]) -> dict[int, list[tuple[Any, ...]]]:
    """By partition, in order: key, value and headers; without the one that Debezium adds."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        headers = tuple(header for header in record.headers if header[0] != "id")
        found.setdefault(record.partition, []).append((record.key, record.value, headers))
    return found


def test_both_roads_give_the_same_records_in_the_same_partitions_and_order(roads, by_debezium):
    assert len(roads["relay"]) == len(by_debezium) == 60
    assert in_order(roads["relay"]) == in_order(by_debezium)
    assert len(in_order(by_debezium)) > 1


def test_recorded_commands_stay_in_the_store(roads, by_debezium):
    for record in (*roads["relay"], *by_debezium):
        assert COMMANDER.encode() not in record.value
        assert all(COMMANDER.encode() not in (value or b"") for _, value in record.headers)


def test_headers_without_a_value_are_on_both_roads_and_empty_texts_too(roads, by_debezium):
    for records in (roads["relay"], by_debezium):
        told = {dict(record.headers).get("ce_correlationid", "not there") for record in records}
        assert told == {None, b"", b"c-1"}


def test_a_schema_is_the_same_record_by_the_relay_and_by_debezium(roads, by_debezium, settings):
    key = str(roads["schema"]).encode()
    first, second = [record for record in read_range(settings, SCHEMAS_TOPIC) if record.key == key]
    assert in_order([first]) == in_order([second])
