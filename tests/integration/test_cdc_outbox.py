"""Events of a real store, published by the real Debezium: the fixed record layout, read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from cdc import apply, check, prepare_topics
from cdc.errors import ConnectorFailed
from cdc.operating.watch import Deadline
from eventstore import ANY, Aggregate, Metadata, SqlEventStore, event
from eventstore.errors import TopicMismatch
from eventstore.fields.serialization import AvroDecoder
from eventstore.kafka.schemas import read_schemas
from eventstore.settings import Settings
from eventstore.topics import (
    HEADER_COLUMNS,
    HEADER_CONSTANTS,
    SCHEMAS_TOPIC,
    TopicRecord,
    message_key,
    partition_of,
    recorded_event,
)

STREAMS = ("a", "b", "é☃ @%s", "d")
METADATA = Metadata(correlation_id="c-1", causation_id="c-0", traceparent="00-0af7-b7ad-01")


class Parcel(Aggregate):
    @event
    class Weighed:
        grams: int
        label: str


class Outbox:
    """A store with events from before and after its connector, and the records they became."""

    def __init__(self, captured: Any, settings: Settings) -> None:
        self.database = captured
        self.category = f"parcel_{captured.name}"
        self.store = SqlEventStore(captured.engine)
        self.store.create_tables()
        self.store.declare_category("parcel", partitions=3, topic=self.category)
        self.store.register(Parcel)
        self.connector = captured.prepared(captured.outbox())
        self.created = prepare_topics(
            settings, [(category.topic, category.partitions) for category in self.store.categories()]
        )

    def append(self, *, metadata: Metadata | None = None) -> None:
        for stream in STREAMS:
            events = [Parcel.Weighed(grams=grams, label=stream) for grams in range(3)]
            self.store.append(f"parcel-{stream}", events, expected=ANY, metadata=metadata)

    def rows(self) -> list[dict[str, Any]]:
        events = self.store.tables.events
        with self.store.engine.connect() as connection:
            return [dict(row) for row in connection.execute(select(events)).mappings()]


@pytest.fixture(scope="module")
def outbox(captured: Callable[[], Any], connect: Any, settings: Settings) -> Outbox:
    made = Outbox(captured(), settings)
    made.append()
    apply(connect, made.connector, source=made.store.engine)
    made.append(metadata=METADATA)
    return made


@pytest.fixture(scope="module")
def records(outbox: Outbox, records_of: Callable[..., list[TopicRecord]]) -> list[TopicRecord]:
    return records_of(outbox.category, count=2 * 3 * len(STREAMS))


def header_text(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def test_records_are_the_stored_rows_in_key_value_partition_and_headers(
    outbox: Outbox, records: list[TopicRecord]
) -> None:
    by_key = {record.key: record for record in records}

    assert len(by_key) == len(records) == len(outbox.rows())
    for row in outbox.rows():
        record = by_key[row["message_key"].encode()]
        headers = [header for header in record.headers if header[0] != "id"]
        columns = [(header, header_text(row[column])) for column, header in HEADER_COLUMNS]
        constants = [(header, text.encode()) for header, text in HEADER_CONSTANTS]
        assert (record.value, record.partition) == (row["payload"], row["partition"])
        assert headers == columns + constants


def test_keys_and_partitions_follow_the_rules_every_road_shares(outbox: Outbox, records: list[TopicRecord]) -> None:
    for record in records:
        headers = dict(record.headers)
        stream, version = str(headers["ce_subject"], "utf-8"), int(headers["ce_streamversion"])
        assert record.key == message_key(stream, version).encode()
        assert record.partition == partition_of(stream, 3)


def test_each_stream_stands_in_its_partition_in_order_from_before_the_connector_to_after(
    records: list[TopicRecord],
) -> None:
    versions: dict[bytes | None, list[int]] = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        headers = dict(record.headers)
        versions.setdefault(headers["ce_subject"], []).append(int(headers["ce_streamversion"] or b""))

    assert len(versions) == len(STREAMS)
    assert all(found == list(range(6)) for found in versions.values())


def test_schemas_arrive_in_their_topic_so_that_a_reader_decodes_without_the_store(
    outbox: Outbox,
    records: list[TopicRecord],
    records_of: Callable[..., list[TopicRecord]],
    settings: Settings,
) -> None:
    assert {record.partition for record in records_of(SCHEMAS_TOPIC, count=1)} == {0}
    schemas = read_schemas(settings)
    decoder = AvroDecoder(lambda schema_id: schemas[schema_id])

    events = [recorded_event(record, decoder) for record in records]

    assert {event.data["label"] for event in events} == set(STREAMS)
    assert METADATA in [event.metadata for event in events]


def test_topics_are_made_before_with_the_partitions_of_their_category(outbox: Outbox, settings: Settings) -> None:
    assert outbox.category in outbox.created
    assert prepare_topics(settings, [(outbox.category, 3)]) == []
    with pytest.raises(TopicMismatch, match="3 partitions, 5 are required"):
        prepare_topics(settings, [(outbox.category, 5)])


def test_an_updated_event_stops_the_connector_with_the_reason_in_short(
    outbox: Outbox, records: list[TopicRecord], connect: Any, records_of: Callable[..., list[TopicRecord]]
) -> None:
    outbox.database.run("UPDATE events SET type = type WHERE position = 1")

    name = outbox.connector.name
    with pytest.raises(ConnectorFailed, match="Unexpected update message") as failure:
        Deadline(name, 20).wait(lambda: check(connect.status(name)) and None, goal="failed")

    assert len(failure.value.trace) == 2
    with pytest.raises(ConnectorFailed):
        apply(connect, outbox.connector, source=outbox.store.engine)
    lenient = outbox.database.outbox(on_update="warn")
    assert apply(connect, lenient, source=outbox.store.engine).changed
    outbox.append()
    assert len(records_of(outbox.category, count=3 * 3 * len(STREAMS))) == 3 * 3 * len(STREAMS)
