"""A command that a class inherits is its own: it is sent to the class's own streams."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pyspark import cloudpickle

from eventstore import Accepted, Aggregate, Dispatcher, MemoryEventStore, command, event
from eventstore.aggregates.aggregate import aggregate_of
from eventstore.errors import DeclarationError, UnknownAggregate


class Base(Aggregate, category="base"):
    height: int = 0

    @event
    class Raised:
        by: int

    @command
    def up(self, by: int) -> None:
        self.emit(self.Raised(by=by))

    def on_raised(self, e: Raised) -> None:
        self.height += e.by


class Child(Base, category="child"):
    pass


class Twice(Base, category="twice"):
    @command
    def up(self, by: int) -> None:
        super().up(2 * by)


class Grandchild(Child, category="grandchild"):
    pass


class Both(Child, Twice, category="both"):
    pass


@pytest.mark.parametrize(
    ("kind", "stream", "height"),
    [
        (Base, "base-1", 2),
        (Child, "child-1", 2),
        (Twice, "twice-1", 4),
        (Grandchild, "grandchild-1", 2),
        (Both, "both-1", 4),
    ],
)
def test_an_inherited_command_is_sent_to_the_streams_of_its_own_class(
    kind: type[Base], stream: str, height: int
) -> None:
    dispatcher = Dispatcher(MemoryEventStore())
    accepted = dispatcher.send("1", kind.up, 2)
    assert isinstance(accepted, Accepted)
    assert (accepted.stream, accepted.command.name) == (stream, f"{kind.category}.up")
    assert accepted.command.arguments == {"by": 2}
    assert dispatcher.load(kind, "1").height == height
    assert aggregate_of(kind.up) is aggregate_of(kind.commands["up"]) is kind


def test_a_command_of_a_mixin_belongs_to_every_aggregate_that_has_it() -> None:
    class Closing:
        @command
        def close(self: Any) -> None:
            self.refuse(f"{self.category} is never closed")

    class Gate(Closing, Aggregate):
        pass

    class Door(Closing, Aggregate):
        pass

    refusals = [Dispatcher(MemoryEventStore()).send("1", kind.close) for kind in (Gate, Door)]
    assert [getattr(refusal, "reason", None) for refusal in refusals] == [
        "gate is never closed",
        "door is never closed",
    ]


def test_what_replaces_a_command_without_being_one_is_none() -> None:
    class Silent(Base):
        def up(self, by: int) -> None:
            """Do nothing."""

    assert "up" not in Silent.commands
    with pytest.raises(UnknownAggregate):
        aggregate_of(Silent.up)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_an_inherited_command_travels_to_workers(pickler: Any) -> None:
    assert pickler.loads(pickler.dumps(Grandchild.up)) is Grandchild.up


# ---- what a state begins with


@dataclass(frozen=True)
class Box:
    items: list[str] = field(default_factory=list)


class Shelf(Aggregate):
    box: Box = Box()
    boxes: tuple[Box, ...] = (Box(),)
    by_name: Mapping[str, list[str]] = {}
    made: Box = field(default_factory=Box)


def test_what_can_be_changed_somewhere_within_is_no_ones_but_its_own_states() -> None:
    one, other = Shelf("1"), Shelf("2")
    one.box.items.append("tea")
    one.boxes[0].items.append("tea")
    one.made.items.append("tea")
    assert (other.box, other.boxes, other.made) == (Box(), (Box(),), Box())
    assert (Shelf.box, Shelf.boxes) == (Box(), (Box(),))


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Price:
    amount: Decimal = Decimal(1)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


CONSTANTS = [
    None, 1, 1.5, True, "tea", b"tea", Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), Colour.RED, Price(),
    (1, Price()), frozenset({Colour.RED}),
]  # fmt: skip


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_what_never_changes_is_not_copied_for_each_state(value: Any) -> None:
    class Plain(Aggregate):
        kept: object = value

    assert Plain("1").kept is value


def test_a_default_that_nobody_can_copy_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"default of state field .*Guarded\.lock cannot be copied") as refused:

        class Guarded(Aggregate):
            lock: Any = threading.Lock()

    assert "default_factory" in refused.value.remedy
