"""Personal values stay sealed in a topic; a subscription with the keys opens them until their subject is erased."""

from __future__ import annotations

import os
import uuid
from typing import Annotated, Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, MasterKeys, Personal, Settings, SqlEventStore, SqlKeyStore, event, subscription
from eventstore.errors import KeysMissing
from eventstore.fields.upcasting import Cast, Rename
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.subscribing import open_subscriber
from eventstore.topics import SCHEMAS_TOPIC, event_topic, schemas_topic
from projections import Table, branches, field
from projections.errors import InvalidDefinition, InvalidPredicate
from tests.waiting import wait_until

MASTER = MasterKeys({"one": os.urandom(32)})


class Guest(Aggregate):
    @event
    class Invited:
        name: Annotated[str, Personal(erased="(erased)")]
        table: int
        phone: Annotated[str, Personal(erased="")] = "0417"


class GuestToday(Aggregate, category="guest"):
    @event(upcasters={1: [Rename("name", to="called"), Cast("phone", int)]})
    class Invited:
        called: Annotated[str, Personal(erased="somebody")]
        phone: Annotated[int, Personal(erased=-1)]


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


def test_a_subscription_opens_what_is_sealed_and_sees_an_erasure(store, topic) -> None:
    settings, name = topic
    assert all(b"Ada" not in found.value and b"Bob" not in found.value for found in read_range(settings, name))
    with SqlKeyStore(store.engine, MASTER) as keys:
        assert names(settings, name, keys) == ["Ada", "Bob"]
        store.erase("1")
        assert names(settings, name, keys) == ["(erased)", "Bob"]


@pytest.mark.parametrize("header", ["ce_id", "ce_subject"])
def test_a_subscription_opens_no_value_under_the_headers_of_another_event(store, topic, header) -> None:
    settings, name = topic
    first, second = read_range(settings, name)
    theirs = dict(second.headers)[header]
    moved = tuple((n, theirs if n == header else value) for n, value in first.headers)
    copied = f"{name}_copied"
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


FAILURES = {
    "its own text": lambda one: ValueError(f"no seat for {one.name}"),
    "a part, in other letters": lambda one: KeyError(one.name[:4].upper()),
    "a representation": lambda one: RuntimeError(repr(one)),
    "a number": lambda one: ValueError(one.phone),
    "an error of a database": lambda one: sa.exc.IntegrityError("insert", {"name": one.name}, ValueError(one.name)),
}


@pytest.mark.parametrize("tell", FAILURES.values(), ids=FAILURES)
def test_the_headers_of_a_dead_letter_tell_no_personal_value(stack, store, tell) -> None:
    store.append("guest-3", [Guest.Invited(name="Zuckmayer", table=3, phone="0417-99")], expected=ANY)
    settings, name = published(stack, store)

    @subscription(name, group=uuid.uuid4().hex, attempts=1)
    def seat(event: Guest.Invited) -> None:
        if event.table == 3:
            try:
                raise tell(event)
            except Exception as cause:
                raise cause from ValueError(f"below it {event.name}")

    with (
        SqlKeyStore(store.engine, MASTER) as keys,
        open_subscriber(seat, settings=settings, keys=keys) as subscriber,
    ):
        wait_until(lambda: subscriber.run_once(timeout=0.2).dead == 1, what="a dead letter")
    (letter,) = read_range(settings, seat.dead_letter_topic)
    told = dict(letter.headers)
    assert told["dead_letter_message"]
    assert told["ce_subject"] == b"guest-3"
    found = b"".join([letter.key, letter.value, *(part or b"" for part in told.values())]).lower()
    assert not any(word in found for word in (b"zuck", b"mayer", b"0417"))


def test_a_subscription_without_keys_stops_and_loses_nothing(topic) -> None:
    settings, name = topic
    with pytest.raises(KeysMissing, match="no keys here to open it"):
        names(settings, name, None)


def test_a_subscription_of_a_newer_class_shows_its_own_placeholders(store, topic) -> None:
    settings, name = topic
    store.erase("1")
    with SqlKeyStore(store.engine, MASTER) as keys:
        seen = handled(settings, name, keys, GuestToday.Invited)
    assert [(invited.called, invited.phone) for invited in seen] == [("somebody", -1), ("Bob", 417)]
    with pytest.raises(KeysMissing, match="no keys here to open it"):
        handled(settings, name, None, GuestToday.Invited)


def test_what_would_work_on_sealed_values_is_refused_when_it_is_declared() -> None:
    with pytest.raises(InvalidDefinition, match="could not be forgotten"):
        Table.from_events(Guest, key="guest_id")
    with pytest.raises(InvalidPredicate, match="a router sees it sealed"):
        branches(Guest, {"nameless": field("name").is_null()}, otherwise="named")
