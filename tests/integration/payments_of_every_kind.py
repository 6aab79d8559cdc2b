"""Payments with a field of every kind, for predicates and branches."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated
from uuid import UUID

from eventstore import Aggregate, Digits, event


class Method(Enum):
    """How it was paid."""

    CARD = "card"
    CASH = "cash"


class Currency(Enum):
    """An enum that is stored by its members' names."""

    EUR = 1
    USD = 2


@dataclass(frozen=True)
class Address:
    """Where a bill goes."""

    country: str
    lines: list[str]
    method: Method | None = None


class Payment(Aggregate):
    """A payment, received or refunded."""

    @event
    class Received:
        amount: Decimal
        wide: Annotated[Decimal, Digits(38, 10)] | None = None
        count: int | None = None
        ratio: float | None = None
        share: float | None = None
        note: str | None = None
        flag: bool | None = None
        day: dt.date | None = None
        at: dt.datetime | None = None
        customer: UUID | None = None
        method: Method | None = None
        currency: Currency | None = None
        address: Address | None = None

    @event
    class Refunded:
        amount: Decimal | None
        reason: str

    @event
    class Closed:
        pass
