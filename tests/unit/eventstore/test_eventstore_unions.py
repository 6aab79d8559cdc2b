"""A field of one of several types comes back as the one it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest

from eventstore import ANY, Aggregate, Digits, MemoryEventStore, Personal, event
from eventstore.errors import InvalidEventData, UnsupportedFieldType
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Card:
    number: str


@dataclass(frozen=True)
class Voucher:
    number: str
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Nothing:
    pass


class Payment(Aggregate):
    @event
    class Received:
        amount: int | Annotated[Decimal, Digits(10, 2)] | float
        by: Card | Voucher | Nothing | None = None
        second: Card | str = ""
        when: datetime | bool = False
        tags: list[Voucher | UUID] | None = None
        colour: Colour | dict[str, int] = Colour.RED


def test_records_of_the_same_fields_and_of_none_come_back_as_they_were() -> None:
    sent = Payment.Received(amount=1, by=Nothing(), second=Card("2"), tags=[Voucher("3"), UUID(int=3)])
    kind = event_type_of(sent)
    _, values = AvroDecoder({kind.schema_id: kind.registered}.__getitem__).decode(kind.encode(sent))
    assert kind.from_plain(values) == sent


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("amount", "3"),
        ("amount", True),
        ("amount", 2**63),
        ("amount", Decimal("0.001")),
        ("by", "card"),
        ("when", datetime(2026, 1, 1)),
        ("tags", [None]),
        ("colour", "red"),
    ],
)
def test_a_value_of_no_branch_is_refused_by_field(field: str, value: Any) -> None:
    sent = Payment.Received(**{"amount": 1, field: value})
    with pytest.raises(InvalidEventData) as refused:
        event_type_of(sent).encode(sent)
    assert refused.value.place == f"payment.received.{field}"


def test_types_that_look_alike_once_written_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFieldType, match=r"field odd of .*Paid holds str or UUID"):

        class Bill(Aggregate):
            @event
            class Paid:
                odd: str | UUID


class Refund(Aggregate):
    @event
    class Made:
        number: Annotated[int | float, Personal(erased=0)]
        by: Annotated[Card | Voucher | date | str, Personal(erased=Card("(erased)"))]
        all: Annotated[list[bytes | list[int]], Personal(erased=[])]


@pytest.mark.parametrize(
    ("number", "by"),
    [(2**53 + 1, Voucher("1")), (1, Card("1")), (1.0, "2026-01-01"), (2.0, date(2026, 1, 1))],
)
def test_a_sealed_union_comes_back_as_it_was(number: Any, by: Any) -> None:
    store, sent = MemoryEventStore(), Refund.Made(number=number, by=by, all=[b"", [], b"\1", [1]])
    store.append("refund-1", [sent], expected=ANY)
    (recorded,) = store.read_stream("refund-1")
    (found,) = Refund.events_of(recorded)
    assert (found, type(found.number)) == (sent, type(number))


def test_a_sealed_union_shows_its_placeholder_once_it_is_erased() -> None:
    store = MemoryEventStore()
    store.append("refund-1", [Refund.Made(number=1, by="a", all=[])], expected=ANY)
    store.erase("1")
    (recorded,) = store.read_stream("refund-1")
    assert Refund.events_of(recorded) == [Refund.Made(number=0, by=Card("(erased)"), all=[])]
