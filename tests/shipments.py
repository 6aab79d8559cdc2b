"""An aggregate whose events have a past: classes of three versions, under one category."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from eventstore.fields.upcasting import Cast, Default, Drop, Rename, Retype


class First(Aggregate, category="shipment"):
    @event
    class Ordered:
        customer: str
        amount: int
        note: str
        day: dt.date

    @event
    class PaidAndSent:
        amount: int
        carrier: str

    @event
    class Gone:
        pass


FIRST_STEP = [Rename("customer", to="customer_id"), Cast("customer_id", int), Drop("note")]


class Second(Aggregate, category="shipment"):
    @event(upcasters={1: FIRST_STEP})
    class Ordered:
        customer_id: int
        amount: int
        day: dt.date


def split(old: dict[str, Any]) -> list[object]:
    """Nothing was paid where the amount is 0, and nothing sent without a carrier."""
    paid = [Shipment.Paid(amount=Decimal(old["amount"]))] if old["amount"] else []
    return [*paid, *([Shipment.Sent(carrier=old["carrier"])] if old["carrier"] else [])]


class Shipment(Aggregate):
    customer_id: int | None = None
    amount: Decimal | None = None
    currency: str | None = None
    priority: int | None = None
    ordered: dt.datetime | None = None
    place: str = "here"

    @event(
        upcasters={
            1: FIRST_STEP,
            2: [Cast("amount", Decimal), Default("currency", "EUR"), Rename("day", to="at"), Cast("at", dt.datetime)],
        }
    )
    class Ordered:
        customer_id: int
        amount: Decimal
        currency: str
        at: dt.datetime
        priority: int = 3

    @event
    class Paid:
        amount: Decimal

    @event
    class Sent:
        carrier: str

    @event(upcasters={1: [split]})
    class PaidAndSent:
        """Written no more."""

    @event(upcasters={1: [Retype("shipment.gone")]})
    class Lost:
        why: str = "nobody knows"

    def on_ordered(self, e: Ordered) -> None:
        self.customer_id, self.amount, self.currency = e.customer_id, e.amount, e.currency
        self.priority, self.ordered = e.priority, e.at

    def on_paid(self, e: Paid) -> None:
        self.amount = e.amount

    def on_sent(self, e: Sent) -> None:
        self.place = f"sent by {e.carrier}"

    def on_lost(self, e: Lost) -> None:
        self.place = f"lost: {e.why}"


def ordered_first(customer: str = "7", amount: int = 30) -> First.Ordered:
    return First.Ordered(customer=customer, amount=amount, note="", day=dt.date(2024, 2, 29))


ORDERED_SECOND = Second.Ordered(customer_id=8, amount=40, day=dt.date(2025, 3, 1))
ORDERED_TODAY = Shipment.Ordered(
    customer_id=9, amount=Decimal("50.5"), currency="USD", at=dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), priority=1
)
REGISTRY = {
    kind.schema_id: kind.registered for owner in (First, Second, Shipment) for kind in owner.event_types.values()
}


def framed(event: object) -> bytes:
    return event_type_of(event).encode(event)
