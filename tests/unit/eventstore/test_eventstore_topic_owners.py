"""Whose events a topic holds, by the last record of each partition and the stores that are to fill it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from cdc import prepare_topics
from eventstore import ANY, NO_STREAM, Aggregate, Settings, SqlEventStore, event, topic_owners
from eventstore.errors import ForeignRecord
from eventstore.topics import TopicRecord

SETTINGS = Settings.for_broker("127.0.0.1:1")


class Order(Aggregate):
    @event
    class Placed:
        sku: str


@pytest.fixture
def store(store_url: str) -> Iterator[SqlEventStore]:
    """A store of the default source with two events of the category order, whose topic is `order`."""
    with SqlEventStore(store_url) as store:
        for number in (1, 2):
            store.append(f"order-{number}", [Order.Placed(sku="tea")], expected=NO_STREAM)
        yield store


def ids(store: SqlEventStore) -> list[UUID]:
    return [recorded.id for recorded in store.read_all()]


def record(event_id: UUID | str | None, *, partition: int = 0, source: str = "/factfold", debezium: bool = False):
    headers = [("id", b"1")] if debezium else []
    headers += [] if event_id is None else [("ce_id", str(event_id).encode())]
    return TopicRecord(
        topic="order", partition=partition, offset=7, key=b"order-1@0", value=b"", timestamp=0,
        headers=(*headers, ("ce_source", source.encode())),
    )  # fmt: skip


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[TopicRecord]:
    """The last records of partitions, as a broker would tell them; none where a topic is new or empty."""
    found: list[TopicRecord] = []

    def last_records(
        settings: Settings, topics: set[str], *, may_be_emptied: bool
    ) -> dict[tuple[str, int], TopicRecord]:
        assert may_be_emptied
        return {(one.topic, one.partition): one for one in found if one.topic in topics}

    monkeypatch.setattr(topic_owners, "last_records", last_records)
    return found


def foreign(*stores: SqlEventStore) -> dict[str, ForeignRecord]:
    return dict(topic_owners.topic_owners(SETTINGS, stores).foreign)


def test_a_topic_that_is_new_or_ends_with_the_store_s_events_is_its_own(store, ends):
    assert foreign(store) == {}
    one, two = ids(store)
    ends += [record(one), record(two, partition=1, debezium=True)]
    assert foreign(store) == {}


def test_an_event_that_the_store_has_deleted_is_its_event_still(store, ends):
    ends.append(record(ids(store)[0]))
    store.delete_stream("order-1", expected=ANY)
    assert foreign(store) == {}


@pytest.mark.parametrize(
    "strange",
    [record(uuid4(), source="/billing"), record(uuid4()), record(uuid4(), debezium=True), record(None), record("?")],
    ids=["another source", "the same source", "of a connector", "no id", "no event"],
)
def test_a_record_of_no_event_of_the_store_is_foreign_whatever_its_source(store, ends, strange):
    ends += [record(ids(store)[0]), TopicRecord(**{**_fields(strange), "partition": 1})]
    (found,) = foreign(store).values()
    source = dict(strange.headers)["ce_source"].decode()
    assert found.message == (
        f"'order' ends with a record that is no event of this store: b'order-1@0' of source '{source}'"
    )
    assert found.place == "order[1]@7"
    assert "topic_prefix=" in found.remedy


def _fields(record: TopicRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in TopicRecord.__dataclass_fields__}


def test_stores_that_share_a_topic_by_choice_own_it_together(store, ends, tmp_path):
    with SqlEventStore(f"sqlite:///{tmp_path}/two.db", source="/acme", topic_prefix="") as other:
        other.create_tables()
        other.append("order-9", [Order.Placed(sku="tea")], expected=NO_STREAM)
        ends += [record(ids(store)[0]), record(ids(other)[0], partition=1, source="/acme")]
        assert foreign(store).keys() == foreign(other).keys() == {"order"}
        assert foreign(store, other) == {}
        owners = topic_owners.topic_owners(SETTINGS, [store, other])
    assert owners.sources == {"order": {"/factfold", "/acme"}}


def test_no_topic_is_made_or_taken_where_another_store_fills_one(store, ends, monkeypatch):
    made: list[str] = []
    monkeypatch.setattr(
        "eventstore.kafka.admin.ensure_topics", lambda settings, specs: made.extend(s.name for s in specs)
    )
    prepare_topics(SETTINGS, [("parcel", 3)], stores=[store])
    assert made == ["factfold.schemas", "parcel", "order"]
    ends.append(record(uuid4()))
    with pytest.raises(ForeignRecord, match="no event of this store"):
        prepare_topics(SETTINGS, stores=[store])
    assert len(made) == 3
