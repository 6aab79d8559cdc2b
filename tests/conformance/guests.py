"""Guests and their bookings: values about persons in a table, in a stream, and beside a reference."""

from __future__ import annotations

import dataclasses
import random
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventstore import ANY, Aggregate, Personal, event
from eventstore.identifiers import StreamName
from projections import ProjectionGroup, Stream, Table, history, on, view
from tests.conformance.history_views import lasting


class Guest(Aggregate):
    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]
        born: Annotated[date | None, Personal()] = None
        credit: Annotated[Decimal, Personal(erased=Decimal(0))] = Decimal("1.5")
        plan: str = "basic"

    @event
    class Renamed:
        name: Annotated[str, Personal(erased="(gone)")]

    @event
    class Upgraded:
        plan: str


class Booking(Aggregate):
    @event
    class Placed:
        guest_id: str
        contact: Annotated[str, Personal(subject="guest_id", erased="")]
        amount: Decimal


def guest_group(guest_topic, booking_topic):
    """Views: a guest, a booking with the name of its guest, the first name of each plan, and all versions of guests."""
    registered = on(Guest.Registered)
    guests = Table.from_events(
        Guest,
        key="guest_id",
        topic=guest_topic,
        columns={
            "name": [registered.take("name"), on(Guest.Renamed).take("name")],
            "born": registered.take("born"),
            "credit": registered.take("credit"),
            "plan": [registered.take("plan"), on(Guest.Upgraded).take("plan")],
        },
    )
    bookings = Stream.from_events(Booking, events=Booking.Placed, key="booking_id", topic=booking_topic)

    @view(key="guest_id", tables={"guests": guests})
    def guest_cards(guests: DataFrame) -> DataFrame:
        return guests

    @view(key="booking_id", tables={"bookings": bookings, "guests": guests})
    def booking_cards(bookings: DataFrame, guests: DataFrame) -> DataFrame:
        joined = bookings.join(guests, "guest_id", "left")
        return joined.select("booking_id", "contact", "amount", F.upper("name").alias("caller"))

    @view(by="plan", tables={"guests": guests})
    def plan_names(guests: DataFrame) -> DataFrame:
        return guests.groupBy("plan").agg(F.min("name").alias("first"))

    return ProjectionGroup("guests", [guest_cards, booking_cards, plan_names, history("guest_history", guests)])


def expected_views(store):
    """The views as plain Python makes them of the store's events, which it reads with the keys."""
    guests: dict[str, dict[str, Any]] = {}
    states: dict[str, list[Any]] = {}
    bookings: dict[str, Any] = {}
    for recorded in store.read_all():
        identity = StreamName.parse(recorded.stream).id
        (found,) = (Guest if recorded.type.startswith("guest.") else Booking).events_of(recorded)
        if isinstance(found, Booking.Placed):
            bookings[identity] = found
        else:
            row = guests[identity] = {**guests.get(identity, {}), **dataclasses.asdict(found)}
            states.setdefault(identity, []).append((int(recorded.time.timestamp() * 1_000_000), row))
    plans: dict[str, list[str]] = {}
    for guest in guests.values():
        plans.setdefault(guest["plan"], []).append(guest["name"])
    names = {identity: guest["name"].upper() for identity, guest in guests.items()}
    return {
        "guest_cards": {i: shown(g) for i, g in guests.items()},
        "guest_history": {i: [shown(row) for row, *_ in lasting(found)] for i, found in states.items()},
        "plan_names": {plan: (min(names_of),) for plan, names_of in plans.items()},
        "booking_cards": {i: (b.contact, b.amount, names.get(b.guest_id)) for i, b in bookings.items()},
    }


def shown(guest):
    return tuple(guest[c] for c in ("name", "born", "credit", "plan"))


class GuestHistory:
    """Random guests, bookings and erasures; every name holds "Ada"."""

    def __init__(self, store, seed):
        self._store, self._random, self._number = store, random.Random(seed), 0
        self._guests: list[str] = []

    def steps(self, count):
        """Append so many events, a tenth of them followed by an erasure."""
        for _ in range(count):
            self._number += 1
            stream, happened = next(self._step())
            self._store.append(stream, [happened], expected=ANY)
            if self._guests and self._random.random() < 0.1:
                self._store.erase(self._random.choice(self._guests))

    def _step(self):
        chance, name = self._random.random(), f"Ada {self._number}"
        if chance < 0.3 or not self._guests:
            self._guests.append(str(self._number))
            born = date(1990, 1, 1 + self._number % 28) if self._number % 2 else None
            yield f"guest-{self._number}", Guest.Registered(name=name, born=born, credit=Decimal(self._number) / 4)
        guest = self._random.choice(self._guests)
        if chance < 0.5:
            yield f"guest-{guest}", Guest.Renamed(name=name)
        if chance < 0.6:
            yield f"guest-{guest}", Guest.Upgraded(plan=f"plan {self._number}")
        # A booking may come before its guest, and one of a stranger.
        whose = guest if chance < 0.9 else str(self._number + 3)
        yield (
            f"booking-{self._number}",
            Booking.Placed(guest_id=whose, contact=f"Ada's {self._number}", amount=Decimal(3)),
        )
