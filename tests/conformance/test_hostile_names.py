"""T12 for streams, categories, topics, types and schemas: a text is stored as it is or refused; nothing is executed."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Annotated, Any

import pytest
import sqlalchemy as sa

from eventstore import (
    ANY,
    Aggregate,
    MasterKeys,
    NewEvent,
    Personal,
    SqlEventStore,
    SqlKeyStore,
    event,
)
from eventstore.errors import InvalidIdentifier, UnsupportedBackend
from eventstore.identifiers import StreamName, check_category, check_source, check_subject, check_topic, check_type_name
from eventstore.topics import event_topic
from tests.hostile_names import HOSTILE
from tests.ledger import Payment

pytestmark = pytest.mark.postgres_in_faults


class Letter(Aggregate):
    @event
    class Sent:
        to: str
        text: Annotated[str, Personal(subject="to", erased="")]


@pytest.fixture
def store(opened):
    store = opened(keys=MasterKeys({"one": b"k" * 32}))
    store.register(Payment, Letter)
    return store


def catalogue(store):
    """Every schema, table and column of the database, and how many rows the tables hold that nobody meant to change."""
    inspector = sa.inspect(store.engine)
    tables = {(schema, table) for schema in inspector.get_schema_names() for table in inspector.get_table_names(schema)}
    columns = {place: [column["name"] for column in inspector.get_columns(place[1], place[0])] for place in tables}
    with store.engine.connect() as connection:
        schemas = connection.scalar(sa.select(sa.func.count()).select_from(store.tables.schemas))
    return {"columns": columns, "schemas": schemas, "categories": store.categories()}


def refused_or(attempt):
    """Whether a name was refused, by the one error there is for it."""
    try:
        attempt()
    except InvalidIdentifier:
        return True
    return False


@pytest.mark.both_databases
def test_stream_ids_are_text_or_refused_and_nothing_else_changes(store):
    before, stored = catalogue(store), {}
    for number, text in enumerate(HOSTILE):
        stream = f"payment-{text}"
        if not refused_or(lambda name=stream, n=number: store.append(name, [Payment.Received(amount=n)], expected=ANY)):  # type: ignore[misc]
            stored.setdefault(stream, []).append(number)
    assert catalogue(store) == before
    assert len(stored) > 80, "hardly any of these texts is refused as a stream id"
    for stream, numbers in stored.items():
        found = list(store.read_stream(stream))
        assert [(one.stream, one.data["amount"]) for one in found] == [(stream, number) for number in numbers]
    assert sum(1 for _ in store.read_all()) == sum(map(len, stored.values()))


@pytest.mark.both_databases
def test_reading_by_a_hostile_name_finds_nothing_or_refuses(store):
    before = catalogue(store)
    for text in HOSTILE:
        refused_or(lambda name=text: list(store.read_stream(f"payment-{name}")))  # type: ignore[misc]
        refused_or(lambda name=text: list(store.read_all(category=name)))  # type: ignore[misc]
        refused_or(lambda name=text: store.head(name))  # type: ignore[misc]
    assert catalogue(store) == before


@pytest.mark.both_databases
def test_categories_topics_and_schemas_are_words_or_refused(store):
    before, accepted = catalogue(store), []
    for text in HOSTILE:
        name = f"c_{uuid.uuid4().hex[:8]}"
        refused_or(lambda topic=text, own=name: accepted.append(store.declare_category(own, partitions=1, topic=topic)))  # type: ignore[misc]
        if not refused_or(lambda category=text: check_category(category)):  # type: ignore[misc]
            assert text.replace("_", "a").isalnum()
            assert text.islower()
            if store.engine.dialect.name == "postgresql":
                refused_or(lambda schema=text: SqlEventStore(store.engine, schema=schema))  # type: ignore[misc]
        else:
            with pytest.raises((InvalidIdentifier, UnsupportedBackend)):
                SqlEventStore(store.engine, schema=text)
    after = catalogue(store)
    assert after["columns"] == before["columns"]
    assert {category.topic for category in accepted} <= {text for text in HOSTILE if text.isascii()} - {"", ".", ".."}


CHECKS = (
    check_category, check_topic, check_type_name, check_source, check_subject, StreamName.parse,
    lambda name: event_topic(name, partitions=1),
)  # fmt: skip


def test_every_check_accepts_or_raises_its_one_error():
    for check in CHECKS:
        assert any([refused_or(partial(check, text)) for text in HOSTILE]), check


@pytest.mark.both_databases
def test_subjects_are_text_or_refused_and_each_is_erased_alone(store):
    before, kept = catalogue(store), []
    for number, text in enumerate(HOSTILE):
        sent = Letter.Sent(to=text, text=f"n{number}") if text else None
        stream = f"letter-{number}"
        if sent and not refused_or(lambda one=sent, name=stream: store.append(name, [one], expected=ANY)):  # type: ignore[misc]
            kept.append((text, stream))
    assert len(kept) > 80
    for text in HOSTILE:
        refused_or(lambda name=text: store.erase(name) if name not in dict(kept) else None)  # type: ignore[misc]
    text, stream = kept[0]
    assert list(store.erase(text).streams) == [stream]
    told = [one.data["text"] for one in store.read_all(category="letter")]
    assert (told[0], len(told), told.count("")) == ("", len(kept), 1)
    assert catalogue(store) == before


def test_a_subject_that_no_database_takes_is_refused_wherever_it_is_given(store):
    keys = SqlKeyStore(store.engine, MasterKeys({"one": b"k" * 32}))
    for text in ("a\ud800", "a\0b", "x" * 10_000):
        for attempt in (
            lambda text: store.append("letter-1", [Letter.Sent(to=text, text="x")], expected=ANY),
            store.erase,
            keys.erase,
            lambda text: keys.keys_for([text]),
        ):
            with pytest.raises(InvalidIdentifier, match="subject"):
                attempt(text)


@pytest.mark.both_databases
def test_sources_are_text_or_refused(store):
    def append(source: str) -> None:
        named = SqlEventStore(store.engine, source=source)
        named.append("payment-1", [Payment.Received(amount=1)], expected=ANY)

    assert refused_or(lambda: append("a\ud800"))
    assert sum(not refused_or(lambda source=text: append(source)) for text in HOSTILE) > 80  # type: ignore[misc]
    with pytest.raises(InvalidIdentifier, match="source"):
        SqlEventStore(store.engine, source="a\ud800")


def test_an_expectation_that_is_none_is_refused(store):
    no_versions: list[Any] = [None, "0", 1.0, True, -1, 2**31, b"1", []]
    for expected in no_versions:
        with pytest.raises(InvalidIdentifier, match="is not a version"):
            store.append("payment-1", [Payment.Received(amount=1)], expected=expected)
        for close in (store.delete_stream, store.archive_stream):
            with pytest.raises(InvalidIdentifier, match="is not a version"):
                close("payment-1", expected=expected)


def test_an_id_that_is_no_uuid_is_refused():
    no_ids: list[Any] = ["text", "64c7aa5a-37b7-4142-8246-1c24cda36206", 7, b"x" * 16]
    for event_id in no_ids:
        with pytest.raises(InvalidIdentifier, match="event id"):
            NewEvent(Payment.Received(amount=1), id=event_id)
