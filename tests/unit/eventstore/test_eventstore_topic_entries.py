"""What a record of any topic is shown as, and what a subscription reads of it, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from eventstore import Aggregate, Settings, event, subscription
from eventstore.erasure import PersonalData
from eventstore.errors import NotFramedAvro, RegistryUnreachable, TopicMissing, UnknownSchema
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroEncoder
from eventstore.inspection.selection import Selection
from eventstore.kafka import entries
from eventstore.kafka.arrivals import ArrivalReader
from eventstore.kafka.entries import TopicLog
from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import TopicRecord
from tests.ledger import Payment
from tests.unit.eventstore.client_records import Message

ID = "0198d0aa-0000-7000-8000-000000000001"
HEADERS = {
    "ce_id": ID, "ce_type": "order.placed", "ce_subject": "order-o1", "ce_streamversion": "3",
    "ce_time": "2026-11-26T12:00:00+00:00", "ce_position": "7", "ce_correlationid": "talk",
}  # fmt: skip
ENVELOPE = RegisteredSchema.of(
    {"type": "record", "namespace": "shop.orders", "name": "Envelope", "fields": [{"name": "op", "type": "string"}]}
)


class Order(Aggregate):
    @event
    class Placed:
        amount: int


PLACED = Order.event_types["order.placed"]


class Schemas:
    """Schemas by id, in place of the topic or of a registry; counts what it was asked for."""

    def __init__(self, *known: RegisteredSchema, missing: Exception | None = None) -> None:
        self.known = {one.id: one for one in known}
        self.missing = missing or UnknownSchema("schema id is unknown", remedy="-")
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self.known:
            raise self.missing
        return self.known[schema_id]

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def log() -> Iterator[TopicLog]:
    with TopicLog("order", Settings.for_broker("127.0.0.1:1")) as opened:
        opened._schemas = Schemas(PLACED.registered)  # type: ignore[assignment]
        yield opened


def record(value: bytes | None, *, key: bytes | None = None, headers: dict[str, str] | None = None) -> TopicRecord:
    given = tuple((name, text.encode()) for name, text in (headers or {}).items())
    return TopicRecord("order", 2, 17, key, value, given, 1_764_158_400_123)


def test_an_event_is_shown_with_its_fields_and_headers(log: TopicLog) -> None:
    found = log._entry(record(PLACED.encode(Order.Placed(amount=3)), key=b"order-o1@3", headers=HEADERS))
    assert (found.form, found.data, found.place, found.key) == ("event", {"amount": 3}, "order[2]@17", "order-o1@3")
    assert found.event is not None
    assert (found.event.id, found.event.stream, found.event.version) == (UUID(ID), "order-o1", 3)
    assert found.time.isoformat() == "2025-11-26T12:00:00.123000+00:00"


@pytest.mark.parametrize("missing", [UnknownSchema("-", remedy="-"), TopicMissing("-", remedy="-")])
def test_avro_of_a_registry_is_decoded_key_and_value(log: TopicLog, missing: Exception) -> None:
    """As of a table captured by a connector whose converter writes Avro."""
    log._settings = log._settings.model_copy(update={"registry": object()})
    log._schemas, log._registry = Schemas(missing=missing), Schemas(ENVELOPE)  # type: ignore[assignment]
    framed = AvroEncoder(ENVELOPE).encode({"op": "c"})
    found = log._entry(record(framed, key=framed))
    assert (found.form, found.data, found.key) == ("avro", {"op": "c"}, '{"op": "c"}')


def test_a_schema_that_nobody_knows_is_asked_for_once(log: TopicLog) -> None:
    registry = Schemas(missing=RegistryUnreachable("the registry is away", remedy="-"))
    log._settings = log._settings.model_copy(update={"registry": object()})
    log._schemas, log._registry = Schemas(), registry  # type: ignore[assignment]
    framed = AvroEncoder(ENVELOPE).encode({"op": "c"})
    for _ in range(3):
        found = log._entry(record(framed))
        assert (found.form, found.data, found.problem) == ("bytes", framed, "the registry is away")
    assert registry.asked == [ENVELOPE.id]


@pytest.mark.parametrize("lacking", ["ce_subject", "ce_time", "ce_streamversion"])
def test_an_event_with_headers_that_misstate_it_is_shown_with_the_reason(log: TopicLog, lacking: str) -> None:
    headers = {name: text for name, text in HEADERS.items() if name != lacking}
    found = log._entry(record(PLACED.encode(Order.Placed(amount=3)), headers=headers))
    assert found.form == "bytes"
    assert lacking in str(found.problem)


@pytest.mark.parametrize(
    ("value", "form", "data"),
    [
        (b'{"a": 1}', "json", {"a": 1}),
        (b"12", "json", 12),
        (b"[" * 100_000, "text", "[" * 100_000),
        ("für".encode(), "text", "für"),
        (b"", "text", ""),
        (b"\0\1", "text", "\0\1"),
        (b"\xff", "bytes", b"\xff"),
        (None, "deleted", None),
    ],
)
def test_what_is_no_event_is_shown_as_what_it_is(log: TopicLog, value: bytes | None, form: str, data: Any) -> None:
    found = log._entry(record(value, key=b"\xff\0k"))
    assert (found.form, found.data, found.problem, found.key) == (form, data, None, "\\xff\0k")


@pytest.mark.parametrize(
    ("selection", "is_selected"),
    [
        (Selection(), True),
        (Selection(streams=("order-o1",), types=("order.placed",), correlation_id="talk"), True),
        (Selection(streams=("order-o2",)), False),
        (Selection(categories=("order",)), True),
        (Selection(categories=("payment",)), False),
        (Selection(types=("order.shipped",)), False),
        (Selection(correlation_id="other"), False),
        (Selection(from_version=3, to_version=3), True),
        (Selection(from_version=4), False),
        (Selection(to_version=2), False),
    ],
)
def test_records_are_selected_by_their_headers_before_they_are_decoded(selection: Selection, is_selected: bool) -> None:
    assert entries._is_selected(selection, record(b"", headers=HEADERS)) is is_selected


@pytest.mark.parametrize("selection", [Selection(streams=("order-o1",)), Selection(to_version=3)])
def test_a_record_without_headers_is_of_no_stream(selection: Selection) -> None:
    assert not entries._is_selected(selection, record(b"{}"))


RECEIVED, REFUNDED = event_type_of(Payment.Received), event_type_of(Payment.Refunded)


@pytest.fixture
def reader():
    known = {kind.schema_id: kind.registered for kind in (RECEIVED, REFUNDED)}
    schemas = SimpleNamespace(schema=known.__getitem__, knows_type=lambda name: name in (RECEIVED.name, REFUNDED.name))

    def book(event: Payment.Received) -> None: ...

    return ArrivalReader(subscription("payment", group="g")(book), schemas, PersonalData(None))


def headed(kind: Any) -> Message:
    """A record whose frame is whole, and whose body is none."""
    event_id = ("ce_id", b"00000000-0000-4000-8000-000000000001")
    return Message(kind.encode(kind.cls(amount=1))[:5], [("ce_type", kind.name.encode()), event_id])


def test_the_header_decides_before_the_body_is_decoded(reader):
    """A body that cannot be decoded proves that nobody tried."""
    unwanted = reader.read(headed(REFUNDED), "payment")
    assert (unwanted.type, unwanted.problem, unwanted.topic) == (None, None, "payment")
    wanted = reader.read(headed(RECEIVED), "payment")
    assert isinstance(wanted.problem, NotFramedAvro)
