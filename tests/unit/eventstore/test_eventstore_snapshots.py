"""Aggregate snapshots: what is loaded is the same with and without them, and less is read."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from eventstore import ANY, Accepted, Aggregate, Dispatcher, Refusal, command, event
from eventstore.errors import DeclarationError, StoreUnavailable, UnsupportedFieldType
from eventstore.snapshots import Snapshots, shape_of
from tests.unit.eventstore.counter import Counter


class Mood(Enum):
    GOOD = 1
    BAD = 2


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


class Basket(Aggregate):
    lines: list[Line] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    mood: Mood = Mood.GOOD
    total: Decimal = Decimal(0)
    owner: UUID | None = None
    opened: datetime | None = None
    day: date = date(2026, 1, 1)
    raw: bytes = b""
    note: str | None = None

    @event
    class Filled:
        sku: str
        price: Decimal
        owner: UUID

    @command
    def fill(self, sku: str, price: Decimal, owner: UUID) -> None:
        self.emit(self.Filled(sku=sku, price=price, owner=owner))

    def on_filled(self, e: Filled) -> None:
        self.lines.append(Line(e.sku, e.price))
        self.counts[e.sku] = self.counts.get(e.sku, 0) + 1
        self.total += e.price
        self.mood = Mood.BAD if self.total > 100 else Mood.GOOD
        self.owner, self.opened, self.raw, self.note = e.owner, datetime(2026, 1, 2, tzinfo=UTC), b"\0x", e.sku


@pytest.fixture
def reads(store, monkeypatch):
    """How many events each read of a stream gave."""
    counted, real = [], store.read_stream

    def read_stream(*arguments, **options):
        found = list(real(*arguments, **options))
        counted.append(len(found))
        return found

    monkeypatch.setattr(store, "read_stream", read_stream)
    return counted


@pytest.mark.parametrize("cached", [0, 3])
def test_an_aggregate_is_the_same_with_snapshots_and_without(store, cached):
    chance = random.Random(7)
    with_snapshots = Dispatcher(store, snapshots=Snapshots(store, every=5, cached=cached))
    for _ in range(60):
        name, price = f"b{chance.randrange(4)}", Decimal(chance.randrange(10_000)) / 100
        with_snapshots.send(name, Basket.fill, chance.choice(["tea", "ink"]), price, UUID(int=chance.randrange(9)))
    for name in ("b0", "b1", "b2", "b3", "b4"):
        found, expected = with_snapshots.load(Basket, name), Dispatcher(store).load(Basket, name)
        assert (found.state(), found.version, found.id) == (expected.state(), expected.version, expected.id)
    assert store.snapshot("basket-b0") is not None


def test_only_what_came_after_the_snapshot_is_read(store, reads):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, every=10))
    for _ in range(25):
        dispatcher.send("a", Counter.add, 1)
    assert max(reads) == 9
    assert store.snapshot("counter-a").version == 19
    assert dispatcher.load(Counter, "a").count == 25
    assert reads[-1] == 5


def test_a_command_of_many_events_that_passes_the_interval_takes_one(store):
    Dispatcher(store, snapshots=Snapshots(store, every=10)).send("a", Counter.add_each, *range(1, 24))
    assert store.snapshot("counter-a").version == 22


def test_a_cached_state_is_brought_up_to_date_by_what_others_appended(store, reads):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, cached=2))
    dispatcher.send("a", Counter.add_each, 1, 2, 3)
    store.append("counter-a", [Counter.Counted(by=10)], expected=ANY)
    assert dispatcher.load(Counter, "a").count == 16
    assert reads == [0, 1]


def test_a_refused_command_leaves_the_cached_state_as_it_was(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, cached=2))
    dispatcher.send("a", Counter.add, 1)
    assert isinstance(dispatcher.send("a", Counter.add, 5, at_most=3), Refusal)
    dispatcher.load(Counter, "a").count = 99
    assert dispatcher.load(Counter, "a").count == 1


def test_the_cache_keeps_the_states_used_last(store, reads):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, cached=2))
    for name in ("a", "b", "c"):
        dispatcher.send(name, Counter.add, 1)
    reads.clear()
    for name in ("a", "b", "c"):
        dispatcher.load(Counter, name)
    assert reads == [1, 0, 0]


def test_a_cached_state_that_is_ahead_of_its_stream_costs_one_lost_race(store, monkeypatch):
    """As after the database was restored from a backup."""
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, cached=2))
    dispatcher.send("a", Counter.add_each, 1, 2)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("delete from events where version = 1")
    accepted = dispatcher.send("a", Counter.add, 7)
    assert isinstance(accepted, Accepted)
    assert (accepted.version, Dispatcher(store).load(Counter, "a").count) == (1, 8)


def test_a_snapshot_of_another_shape_is_ignored_and_replaced(store):
    class Before(Aggregate, category="thing"):
        size: int = 0

    class Fields(Aggregate, category="thing"):
        size: str = ""

    class Handlers(Aggregate, category="thing", state_version=1):
        size: int = 0

    assert len({shape_of(kind).id for kind in (Before, Fields, Handlers)}) == 3
    snapshots = Snapshots(store)
    snapshots.take(Before.restored({"size": 7}, id="1", version=3))
    stream = Before("1").stream
    assert snapshots.latest(Before, stream).size == 7
    assert snapshots.latest(Fields, stream) is snapshots.latest(Handlers, stream) is None
    snapshots.take(Handlers.restored({"size": 8}, id="1", version=0))
    assert (snapshots.latest(Before, stream), snapshots.latest(Handlers, stream).size) == (None, 8)


def test_one_is_taken_on_demand(store):
    for _ in range(3):
        Dispatcher(store).send("a", Counter.add, 1)
    taken = Dispatcher(store, snapshots=Snapshots(store)).take_snapshot(Counter, "a")
    assert (taken.count, store.snapshot("counter-a").version) == (3, 2)
    with pytest.raises(DeclarationError, match="takes no aggregate snapshots"):
        Dispatcher(store).take_snapshot(Counter, "a")


def test_a_snapshot_that_cannot_be_kept_is_no_failure_of_the_command(store, monkeypatch):
    def away(snapshot):
        raise StoreUnavailable("gone", remedy="wait")

    monkeypatch.setattr(store, "save_snapshot", away)
    with capture_logs() as logs:
        assert isinstance(Dispatcher(store, snapshots=Snapshots(store, every=1)).send("a", Counter.add, 1), Accepted)
    assert [(log["event"], log["stream"], log["cause"]) for log in logs] == [
        ("aggregate snapshot not stored", "counter-a", "gone")
    ]


def test_a_state_field_without_a_place_in_avro_is_named(store):
    class Odd(Aggregate):
        seen: set[str] = field(default_factory=set)

    with pytest.raises(UnsupportedFieldType, match=r"seen of .*Odd"):
        Snapshots(store).take(Odd("1"))
