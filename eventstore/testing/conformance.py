"""What every event store must do; a backend joins with a fixture named `store`.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self) -> EventStore: ...

Each test uses streams of its own, so one store may serve them all. A backend that does not do everything joins by the
parts for what it does: StreamConformance (append, read, repeat), EvolutionConformance, SnapshotConformance,
DeletionConformance, ArchiveConformance. StoreConformance is all of these. TransactionConformance, which wants a fixture
`begin` too, is for stores in a database that others write to as well.
"""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from uuid import uuid4

import pytest

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import SchemaIncompatible
from eventstore.event_types import event
from eventstore.fields.upcasting import Cast
from eventstore.identifiers import ANY, NO_STREAM
from eventstore.snapshots import AggregateSnapshot, SnapshotStore
from eventstore.store import EventStore
from eventstore.testing.closed_streams import ArchiveConformance as ArchiveConformance
from eventstore.testing.closed_streams import ClosedStreamConformance as ClosedStreamConformance
from eventstore.testing.closed_streams import DeletionConformance as DeletionConformance
from eventstore.testing.joined_transactions import TransactionConformance as TransactionConformance
from eventstore.testing.open_streams import StreamConformance as StreamConformance


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


class SnapshotConformance:
    """A part of the suite; `store` must be ready for use."""

    def test_a_snapshot_is_stored_until_a_newer_one_or_another_shape_replaces_it(self, store: SnapshotStore) -> None:
        stream, one, two = f"account-{uuid4()}", b"\0\0\0\0\1", b"\0\0\0\0\2"
        assert store.snapshot(stream) is None
        for version, shape, body, stored in (
            (4, one, b"first", True),
            (4, one, b"the same again", False),
            (3, one, b"late", False),
            (5, one, b"newer", True),
            (2, two, b"of another shape", True),
        ):
            offered = AggregateSnapshot(stream, version, shape + body)
            store.save_snapshot(offered)
            assert (store.snapshot(stream) == offered) == stored


class StoreConformance(StreamConformance, EvolutionConformance, SnapshotConformance, ClosedStreamConformance):
    """Tests that every event store passes. Subclass it and give it a fixture `store`.

    Examples:
        >>> class TestMyStore(StoreConformance):
        ...     @pytest.fixture
        ...     def store(self):
        ...         return MyStore()
    """
