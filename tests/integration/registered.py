"""Aggregates whose schemas a registry holds: crates of two versions, crates that break the rule, barrels."""

from __future__ import annotations

from eventstore import Aggregate, event
from eventstore.fields.upcasting import Rename


class Crate(Aggregate):
    @event
    class Packed:
        kilos: int
        label: str

    @event
    class Sent:
        carrier: str


class CrateToday(Aggregate, category="crate"):
    kilos: int | None = None
    name: str | None = None

    @event(upcasters={1: [Rename("label", to="name")]})
    class Packed:
        kilos: int
        name: str

    @event
    class Sent:
        carrier: str


class CrateOfAnother(Aggregate, category="crate"):
    @event
    class Sent:
        carrier: str
        price: int = 0  # enough for us; to a registry's BACKWARD it is no default


class Barrel(Aggregate):
    @event
    class Filled:
        litres: int
