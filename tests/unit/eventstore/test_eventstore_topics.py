"""Keys, partitions and records are the same whoever writes them, and a process reads the topics of its store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from cdc import prepare_topics
from eventstore import ANY, NO_STREAM, Settings, SqlEventStore
from eventstore.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ForeignRecord,
    InvalidIdentifier,
    NotFramedAvro,
    TopicMissing,
)
from eventstore.event_types import event, event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import Position
from eventstore.kafka import admin, tails
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.processes.running import process_subscription
from eventstore.store import Metadata
from eventstore.topics import (
    HEADER_COLUMNS,
    TopicRecord,
    TopicSpec,
    branch_topic,
    event_topic,
    message_key,
    murmur2,
    partition_of,
    recorded_event,
    require_source,
    schemas_topic,
    topic_of_category,
)
from tests.orders import PLACED
from tests.unit.eventstore.fulfilment import Fulfilment


@pytest.mark.parametrize(
    ("key", "java"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_murmur2_is_javas(key: str, java: int) -> None:
    assert murmur2(key.encode()) == java % 2**32


@pytest.mark.parametrize(("key", "java"), [("21", 0), ("foobar", 0), ("a-little-bit-long-string", 2)])
def test_a_key_has_the_partition_of_three_that_java_chooses(key: str, java: int) -> None:
    assert partition_of(key, 3) == java


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 500))
def test_every_key_has_a_partition(key: str, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


def test_a_key_is_unique_to_its_event() -> None:
    assert message_key("order-7", 3) == "order-7@3"


def test_history_is_never_deleted_by_time_and_branches_are_never_compacted() -> None:
    spec = event_topic("order", partitions=4)
    assert (spec.config["cleanup.policy"], spec.config["retention.ms"]) == ("compact", "-1")
    assert schemas_topic().partitions == 1
    assert branch_topic("payment.suspicious", partitions=2).config["cleanup.policy"] == "delete"


def test_a_topic_name_kafka_would_refuse_is_refused_here() -> None:
    with pytest.raises(InvalidIdentifier):
        TopicSpec("no spaces", 1)


@event(name="order.placed")
class Placed:
    order_id: str


def _record() -> TopicRecord:
    headers = {
        "ce_id": str(UUID(int=5)),
        "ce_type": "order.placed",
        "ce_source": "/shop",
        "ce_subject": "order-7",
        "ce_time": "2026-01-02T03:04:05.000060Z",
        "ce_streamversion": "3",
        "ce_position": "99",
        "ce_correlationid": "c",
    }
    encoded = tuple((name, value.encode()) for name, value in headers.items())
    absent = (("ce_causationid", None), ("traceparent", None))
    value = event_type_of(Placed(order_id="7")).encode(Placed(order_id="7"))
    return TopicRecord("order", 1, 42, b"order-7@3", value, encoded + absent, 0)


def _decoder() -> AvroDecoder:
    return AvroDecoder(lambda _: event_type_of(Placed(order_id="7")).registered)


def test_a_topic_record_is_read_as_the_event_it_was() -> None:
    recorded = recorded_event(_record(), _decoder())
    assert (recorded.id, recorded.stream, recorded.version) == (UUID(int=5), "order-7", 3)
    assert (recorded.type, recorded.data, recorded.position) == (
        "order.placed",
        {"order_id": "7"},
        Position(0, 99),
    )
    assert recorded.metadata == Metadata(correlation_id="c")
    assert recorded.time == datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)


@pytest.mark.parametrize("missing", ["ce_id", "ce_type", "ce_subject", "ce_time", "ce_streamversion", "ce_position"])
def test_a_record_without_a_header_says_where_it_is(missing: str) -> None:
    record = _record()
    cut = replace(record, headers=tuple(each for each in record.headers if each[0] != missing))
    with pytest.raises(NotFramedAvro, match=missing) as refused:
        recorded_event(cut, _decoder())
    assert refused.value.place == "order[1]@42"


def test_a_tombstone_is_no_event() -> None:
    with pytest.raises(NotFramedAvro, match="no value"):
        recorded_event(replace(_record(), value=None), _decoder())


def test_header_names_are_cloudevents_in_binary_mode() -> None:
    assert all(header.startswith("ce_") or header == "traceparent" for _, header in HEADER_COLUMNS)


@pytest.mark.parametrize(
    ("source", "topic"),
    [
        ("/factfold", "order"),
        ("/shop", "shop.order"),
        ("shop", "shop.order"),
        ("/eu/shop/", "shop.order"),
        ("https://shop.example/orders", "orders.order"),
        ("https://shop.example", "shop.example.order"),
        ("urn:acme:shop", "urn-acme-shop.order"),
        ("/depot ü", "depot.order"),
        ("/..shop..", "shop.order"),
        ("/" + "s" * 40, "s" * 40 + ".order"),
    ],
)
def test_a_topic_carries_the_name_of_its_service(source: str, topic: str) -> None:
    assert topic_of_category("order", source=source) == topic


@pytest.mark.parametrize("source", ["/", "//", "/ü", "/..", "/" + "s" * 41])
def test_a_source_that_names_no_topic_is_refused_with_a_remedy(source: str) -> None:
    with pytest.raises(InvalidIdentifier, match="gives no name for the topic of category 'order'") as caught:
        topic_of_category("order", source=source)
    assert "topic_prefix=" in caught.value.remedy


def test_a_record_of_its_own_source_passes() -> None:
    require_source((("ce_id", b"1"), ("ce_source", "/depot ü".encode())), "/depot ü", place="order[0]@1")


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ((("ce_source", b"/billing"),), "source is '/billing'"),
        ((("ce_source", b"/Shop"),), "source is '/Shop'"),
        ((("ce_source", b"\xff"),), "source is"),
        ((("ce_source", None),), "source is none"),
        ((), "source is none"),
    ],
)
def test_a_record_of_another_source_is_refused_by_both_names_and_its_place(headers, told):
    with pytest.raises(ForeignRecord, match=f"'/shop' is declared, and the record's {told}") as caught:
        require_source(headers, "/shop", place="order[0]@1")
    assert caught.value.place == "order[0]@1"


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({}, ("order", "payment")),
        ({"source": "/shop"}, ("shop.order", "shop.payment")),
        ({"source": "/shop", "topic_prefix": ""}, ("order", "payment")),
        ({"topic_prefix": "acme-"}, ("acme-order", "acme-payment")),
    ],
)
def test_a_process_reads_the_topics_of_its_store(tmp_path: Path, options: dict[str, str], topics: tuple[str, ...]):
    with SqlEventStore(f"sqlite:///{tmp_path / 'shop.db'}", **options) as store:
        store.create_tables()
        assert process_subscription(store, Fulfilment).topics == topics


def test_a_category_with_a_topic_of_its_own_is_read_from_it(tmp_path: Path):
    with SqlEventStore(f"sqlite:///{tmp_path / 'shop.db'}") as store:
        store.create_tables()
        store.declare_category("order", partitions=4, topic="orders-of-the-shop")
        assert process_subscription(store, Fulfilment).topics == ("orders-of-the-shop", "payment")


# ---- Topics without leaders yet, and topics that are made but not known yet, by admin clients that play the broker


class Broker:
    """Answers list_offsets by an error so many times, then by offset 7."""

    def __init__(self, error: int, times: int) -> None:
        self.error, self.left = error, times

    def list_topics(self, timeout):
        return SimpleNamespace(topics={"order": SimpleNamespace(error=None, partitions={0: None})})

    def list_offsets(self, asked, **options):
        answer: Future = Future()
        if self.left:
            self.left -= 1
            answer.set_exception(KafkaException(KafkaError(self.error)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, answer)


def reader(broker, deadline=60.0):
    offsets = OffsetReader(Settings.for_broker("127.0.0.1:1"), deadline=deadline)
    offsets._cluster.admin = broker
    return offsets


@pytest.mark.parametrize("error", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH])
def test_a_partition_that_moves_is_asked_for_again(error):
    broker = Broker(error, 3)
    assert reader(broker).end_offsets(["order"]) == {"order": {0: 7}}
    assert broker.left == 0


def test_one_that_stays_without_a_leader_is_an_error_after_the_deadline():
    with pytest.raises(BrokerRefused, match=r"order"):
        reader(Broker(KafkaError.NOT_LEADER_FOR_PARTITION, 10_000), deadline=1.0).end_offsets(["order"])


def test_a_refusal_is_not_asked_again():
    broker = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED, 2)
    with pytest.raises(BrokerRefused):
        reader(broker).end_offsets(["order"])
    assert broker.left == 1


class KilledBroker(Broker):
    """Answers list_offsets by a number that is no offset."""

    def __init__(self, answer: int) -> None:
        super().__init__(0, 0)
        self.answer = answer

    def list_offsets(self, asked, **options):
        answer: Future = Future()
        answer.set_result(SimpleNamespace(offset=self.answer))
        return dict.fromkeys(asked, answer)


@pytest.mark.parametrize("answer", [OFFSET_INVALID, OFFSET_STORED, OFFSET_BEGINNING, OFFSET_END])
@pytest.mark.parametrize("ask", ["end_offsets", "beginning_offsets"])
def test_a_number_that_is_no_offset_is_a_broker_that_does_not_answer(ask, answer):
    with pytest.raises(BrokerUnreachable, match="offsets of 'order'"):
        getattr(reader(KilledBroker(answer)), ask)(["order"])


@pytest.mark.parametrize("answer", [OFFSET_INVALID, OFFSET_STORED, OFFSET_BEGINNING])
def test_so_it_is_where_a_moment_is_looked_for(answer):
    broker = reader(KilledBroker(answer))
    broker.end_offsets = lambda topics: {"order": {0: 7}}
    with pytest.raises(BrokerUnreachable):
        broker.offsets_at(datetime.now(UTC), ["order"])


class LateBroker:
    """Makes a topic at once, and knows of it from the third question on."""

    def __init__(self, knows_at: int) -> None:
        self.questions, self._knows_at = 0, knows_at

    def create_topics(self, topics, **options):
        made: Future = Future()
        made.set_result(None)
        return {topic.topic: made for topic in topics}

    def list_topics(self, timeout):
        self.questions += 1
        known = {"order": SimpleNamespace(error=None, partitions={0: None})}
        return SimpleNamespace(topics=known if self.questions >= self._knows_at else {})


def made_by(broker, monkeypatch, *, deadline):
    monkeypatch.setattr(admin, "AdminClient", lambda settings: broker)
    monkeypatch.setattr(admin, "compare_topics", lambda *_, **__: admin.TopicsCompared(["order"], []))
    return ensure_topics(Settings.for_broker("127.0.0.1:1"), [event_topic("order", partitions=1)], deadline=deadline)


def test_a_topic_is_made_once_the_broker_knows_of_it(monkeypatch):
    broker = LateBroker(knows_at=3)
    assert (made_by(broker, monkeypatch, deadline=10), broker.questions) == (["order"], 3)


def test_a_topic_that_the_broker_never_hears_of_is_told(monkeypatch):
    with pytest.raises(TopicMissing, match="'order' does not exist"):
        made_by(LateBroker(knows_at=1_000_000), monkeypatch, deadline=0.2)


# ---- Whose events a topic holds, by the last record of each partition and the stores that are to fill it


SETTINGS = Settings.for_broker("127.0.0.1:1")


@pytest.fixture
def store(store_url: str) -> Iterator[SqlEventStore]:
    """A store of the default source with two events of the category order, whose topic is `order`."""
    with SqlEventStore(store_url) as store:
        for number in (1, 2):
            store.append(f"order-{number}", [PLACED], expected=NO_STREAM)
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

    monkeypatch.setattr(tails, "last_records", last_records)
    return found


def foreign(*stores: SqlEventStore) -> dict[str, ForeignRecord]:
    return dict(tails.topic_owners(SETTINGS, stores).foreign)


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
        other.append("order-9", [PLACED], expected=NO_STREAM)
        ends += [record(ids(store)[0]), record(ids(other)[0], partition=1, source="/acme")]
        assert foreign(store).keys() == foreign(other).keys() == {"order"}
        assert foreign(store, other) == {}
        owners = tails.topic_owners(SETTINGS, [store, other])
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
