"""Keys, partitions and records are the same whoever writes them, and a process reads the topics of its store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import SqlEventStore
from eventstore.errors import ForeignRecord, InvalidIdentifier, NotFramedAvro
from eventstore.event_types import event, event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import Position
from eventstore.messages import Metadata
from eventstore.processes.running import process_subscription
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
