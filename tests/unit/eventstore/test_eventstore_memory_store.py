"""The store in memory stands in for the real one: a service's start-up code works in its tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eventstore import ANY, MemoryEventStore, Position, SqlEventStore
from eventstore.errors import InvalidArgument, InvalidIdentifier, UnknownSchema
from eventstore.store import Category, FenceStatus
from eventstore.testing.fixed import FixedClock
from tests.errors import raises
from tests.ledger import Payment
from tests.rows import each_row
from tests.unit.eventstore.counter import Counter

Store = MemoryEventStore | SqlEventStore

# What a store in memory does not have, and why.
EXCEPTIONS = {
    "version": "no tables",
    "migration_sql": "no tables",
    "ahead_of_cluster": "no cluster that it could have been moved out of",
    "renumber": "no cluster that it could have been moved out of",
    "export_file": "what is to be kept is not kept here",
    "import_file": "what is to be kept is not kept here",
    "recorded_ids": "no topic that it could fill",
    "topics_of": "no topic that it could fill",
    "read_selected": "looked into by commands, which open databases",
    "read_categories": "read by the source of a subscription, whose place is in a database",
    "sources_of": "no import by which an event of another source could have come",
    "within": "no transaction that it could take part in",
}
PARAMETERS = {"append": {"connection"}, "append_batch": {"connection"}}


def public(kind: type) -> dict[str, Any]:
    own = [(name, one) for base in reversed(kind.__mro__[:-1]) for name, one in vars(base).items()]
    return {name: one for name, one in own if not name.startswith("_") and inspect.isfunction(one)}


def test_the_store_in_memory_has_every_method_of_the_one_in_a_database() -> None:
    real, ours = public(SqlEventStore), public(MemoryEventStore)
    assert real.keys() - ours.keys() == EXCEPTIONS.keys()
    assert ours.keys() <= real.keys()


@each_row("name", sorted(public(MemoryEventStore)))
def test_a_method_takes_the_same_parameters(name: str) -> None:
    real, ours = (inspect.signature(public(kind)[name]).parameters for kind in (SqlEventStore, MemoryEventStore))
    expected = {known: one.kind for known, one in real.items() if known not in PARAMETERS.get(name, ())}
    assert {known: one.kind for known, one in ours.items()} == expected


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> Iterator[Store]:
    stores: dict[str, Callable[[], Store]] = {
        "memory": lambda: MemoryEventStore(clock=clock),
        "sqlite": lambda: SqlEventStore(f"sqlite:///{tmp_path / 'events.db'}", clock=clock),
    }
    with stores[request.param]() as store:
        store.create_tables()
        yield store


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


def test_what_a_service_does_when_it_starts(store: Store) -> None:
    for _ in range(2):
        store.create_tables()
        store.register(Counter, Payment)
        store.declare_category("payment", partitions=4)
        store.declare_category("shipment", partitions=2, topic="shipped")
    assert store.categories() == [
        Category("counter", "counter", 4, 1),
        Category("payment", "payment", 4, 1),
        Category("shipment", "shipped", 2, 1),
    ]
    kinds = [*Counter.event_types.values(), *Payment.event_types.values()]
    assert store.schemas() == sorted((kind.registered for kind in kinds), key=lambda schema: schema.id)
    assert store.schema(kinds[0].schema_id) == kinds[0].registered


def test_what_it_is_refused(store: Store) -> None:
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    with raises(InvalidArgument, code="partitions-fixed", match="has 4 partitions, 8 were asked for"):
        store.declare_category("payment", partitions=8)
    with pytest.raises(InvalidIdentifier):
        store.declare_category("No Such", partitions=1)
    with pytest.raises(UnknownSchema):
        store.schema(1)


def test_where_a_category_stands(store: Store, clock: FixedClock) -> None:
    assert (store.fence(), store.last_position("payment")) == (FenceStatus(0, 0.0, None), None)
    first = store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    store.append("counter-1", [Counter.Counted(by=1)], expected=ANY)
    clock.advance(timedelta(hours=1))
    second = store.append("payment-2", [Payment.Received(amount=1)] * 2, expected=ANY)
    assert store.last_position("payment") == second.positions[-1]
    assert store.last_position("payment", before=second.time) == first.positions[0]
    clock.advance(timedelta(days=-1))
    behind = store.append("payment-3", [Payment.Received(amount=1)], expected=ANY)
    assert store.last_position("payment", before=second.time) == first.positions[0]
    assert store.last_position("payment", before=behind.time) is None
    assert store.backlog(None, category="payment") == (4, first.time)
    assert store.backlog(first.positions[0], category="payment") == (3, second.time)
    assert store.backlog(Position(9, 9), category="payment") == (0, None)


def test_which_streams_are_archived(store: Store) -> None:
    for stream in ("payment-2", "payment-1", "counter-1"):
        event: object = Counter.Counted(by=1) if stream.startswith("counter") else Payment.Received(amount=1)
        store.append(stream, [event], expected=ANY)
        store.archive_stream(stream, expected=0)
    assert list(store.archived_streams()) == ["counter-1", "payment-1", "payment-2"]
    assert list(store.archived_streams("payment")) == ["payment-1", "payment-2"]
    with pytest.raises(InvalidIdentifier):
        store.archived_streams("%")
