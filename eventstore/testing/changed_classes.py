"""What every event store must do with classes that changed since it was written to; a part of the conformance suite."""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from uuid import uuid4

import pytest

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import SchemaIncompatible
from eventstore.event_types import event
from eventstore.fields.upcasting import Cast
from eventstore.identifiers import ANY, NO_STREAM
from eventstore.store import EventStore


class Gauge(Aggregate):
    """An aggregate whose event changes."""

    @event
    class Read:
        """As it was first."""

        value: int


class CarelessGauge(Aggregate, category="gauge"):
    """The same event with another type, and nothing said of the older ones."""

    @event
    class Read:
        """The number as a text."""

        value: str


class CarefulGauge(Aggregate, category="gauge"):
    """The same event with another type, and how the older ones are read."""

    @event(upcasters={1: [Cast("value", str)]})
    class Read:
        """The number as a text."""

        value: str


class EvolutionConformance:
    """Schemas that are new to a store are held against those it has."""

    def test_a_class_that_could_not_read_what_is_stored_is_refused(self, store: EventStore) -> None:
        stream = f"gauge-{uuid4()}"
        store.append(stream, [Gauge.Read(value=7)], expected=NO_STREAM)
        for _ in range(2):
            with pytest.raises(
                SchemaIncompatible, match=r"gauge\.read\.value .* it is long there, and string"
            ) as refused:
                store.append(stream, [CarelessGauge.Read(value="8")], expected=ANY)
        assert refused.value.remedy.endswith('Cast("value", …)')
        store.append(stream, [CarefulGauge.Read(value="9"), Gauge.Read(value=10)], expected=0)
        values = [event.value for one in store.read_stream(stream) for event in CarefulGauge.events_of(one)]
        assert values == ["7", "9", "10"]
