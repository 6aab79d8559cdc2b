"""Personal values stay sealed in a topic; a subscription with the keys opens them until their subject is erased."""

from __future__ import annotations

import os
import uuid
from typing import Annotated, Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, MasterKeys, Personal, Settings, SqlEventStore, SqlKeyStore, event, subscription
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.subscribing import open_subscriber
from eventstore.topics import SCHEMAS_TOPIC, event_topic, schemas_topic
from tests.rows import each_row
from tests.waiting import wait_until

MASTER = MasterKeys({"one": os.urandom(32)})


class Guest(Aggregate):
    @event
    class Invited:
        name: Annotated[str, Personal(erased="(erased)")]
        table: int
        phone: Annotated[str, Personal(erased="")] = "0417"


@pytest.fixture
def store(database):
    with SqlEventStore(database(), keys=MASTER) as opened:
        opened.create_tables()
        opened.append("guest-1", [Guest.Invited(name="Ada", table=1)], expected=ANY)
        opened.append("guest-2", [Guest.Invited(name="Bob", table=2)], expected=ANY)
        yield opened


@pytest.fixture
def topic(stack, store):
    return published(stack, store)


def published(stack, store) -> tuple[Settings, str]:
    """Put the store's rows as they stand into a topic: what Debezium and the relay publish."""
    settings, name = Settings.for_broker(stack.info.bootstrap_servers), f"guest_{uuid.uuid4().hex[:8]}"
    ensure_topics(settings, [event_topic(name, partitions=1), schemas_topic()])
    events = store.tables.events
    with store.engine.connect() as connection:
        rows = connection.execute(sa.select(events).order_by(events.c.position)).all()
    producer = RecordProducer(settings)
    schemas = [OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(s.id).encode(), value=s.to_json()) for s in store.schemas()]
    producer.send([*schemas, *(record(name, row) for row in rows)])
    return settings, name


def record(topic: str, row: Any) -> OutgoingRecord:
    headers = {
        "ce_id": str(row.id), "ce_type": row.type, "ce_source": row.ce_source, "ce_subject": row.stream,
        "ce_time": row.ce_time, "ce_streamversion": str(row.version), "ce_position": str(row.position),
    }  # fmt: skip
    told = tuple((name, text.encode()) for name, text in headers.items())
    return OutgoingRecord(
        topic=topic, key=row.message_key.encode(), value=bytes(row.payload), headers=told, partition=0
    )


def names(settings: Settings, topic: str, keys: Any) -> list[str]:
    return [invited.name for invited in handled(settings, topic, keys, Guest.Invited)]


def handled(settings: Settings, topic: str, keys: Any, cls: Any) -> list[Any]:
    seen: list[Any] = []

    @subscription(topic, group=uuid.uuid4().hex)
    def welcome(event: cls) -> None:
        seen.append(event)

    with open_subscriber(welcome, settings=settings, keys=keys) as subscriber:
        wait_until(lambda: subscriber.run_once(timeout=0.2) and len(seen) == 2, what="two guests")
    return seen


def test_a_subscription_opens_what_is_sealed_and_sees_an_erasure(store, topic):
    settings, name = topic
    assert all(b"Ada" not in found.value and b"Bob" not in found.value for found in read_range(settings, name))
    with SqlKeyStore(store.engine, MASTER) as keys:
        assert names(settings, name, keys) == ["Ada", "Bob"]
        store.erase("1")
        assert names(settings, name, keys) == ["(erased)", "Bob"]


@each_row("header", ["ce_id", "ce_subject"])
def test_a_subscription_opens_no_value_under_the_headers_of_another_event(store, topic, header):
    settings, name = topic
    first, second = read_range(settings, name)
    theirs = dict(second.headers)[header]
    moved = tuple((n, theirs if n == header else value) for n, value in first.headers)
    copied = f"{name}_{header}"
    ensure_topics(settings, [event_topic(copied, partitions=1)])
    RecordProducer(settings).send(
        [OutgoingRecord(topic=copied, key=first.key, value=first.value, headers=moved, partition=0)]
    )
    seen: list[Any] = []

    @subscription(copied, group=uuid.uuid4().hex)
    def welcome(event: Guest.Invited) -> None:
        seen.append(event)

    with (
        SqlKeyStore(store.engine, MASTER) as keys,
        open_subscriber(welcome, settings=settings, keys=keys) as subscriber,
    ):
        wait_until(lambda: subscriber.run_once(timeout=0.2).dead == 1, what="a dead letter")
    assert seen == []
