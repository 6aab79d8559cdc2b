"""Two roads from one store to Kafka: the records of the relay are those of the real Debezium, byte by byte."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from cdc import apply_connector, prepare_topics
from eventstore import ANY, Aggregate, Metadata, SqlEventStore, event
from eventstore.kafka.consumer import read_range
from eventstore.relay import Relay
from eventstore.topics import SCHEMAS_TOPIC, TopicRecord

# Names and values that a spelling of its own would give away.
STREAMS = ("a", "b", "é☃ @%s", 'it\'s "d"', "x" * 200)
EVERYTHING = Metadata(correlation_id="c-1", causation_id='c "0" ü', traceparent="00-0af7-b7ad-01")
PARTIAL = Metadata(correlation_id="")
PARTITIONS = 3


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
            events = [Pallet.Loaded(kilos=kilos, label=stream) for kilos in range(3)]
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


def test_headers_without_a_value_are_on_both_roads_and_empty_texts_too(roads, by_debezium):
    for records in (roads["relay"], by_debezium):
        told = {dict(record.headers).get("ce_correlationid", "not there") for record in records}
        assert told == {None, b"", b"c-1"}


def test_a_schema_is_the_same_record_by_the_relay_and_by_debezium(roads, by_debezium, settings):
    key = str(roads["schema"]).encode()
    first, second = [record for record in read_range(settings, SCHEMAS_TOPIC) if record.key == key]
    assert in_order([first]) == in_order([second])
