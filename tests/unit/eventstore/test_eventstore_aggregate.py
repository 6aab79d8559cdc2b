"""Aggregates decide and evolve; mistakes in their declaration are found when the class is defined."""

from __future__ import annotations

import pickle
import subprocess
import sys
from decimal import Decimal
from enum import Enum, Flag, IntFlag
from typing import Annotated, Any, ClassVar

import pytest
from pyspark import cloudpickle

from eventstore.aggregates.aggregate import Aggregate, aggregate_of, command
from eventstore.errors import (
    DeclarationError,
    InvalidIdentifier,
    Refused,
    UnknownAggregate,
    UnknownEventType,
    UnknownHandler,
    UnsupportedFieldType,
)
from eventstore.event_types import event, event_type_of
from eventstore.fields.field_types import Digits


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Order(Aggregate):
    limit: ClassVar[int] = 100
    status: str = "new"
    size: Size | None = None
    total: Annotated[Decimal, Digits(12, 2)] = Decimal(0)
    lines: list[str] = []  # noqa: RUF012  # copied for every state, which is what is tested

    @event
    class Placed:
        order_id: str
        sku: str
        amount: Decimal
        size: Size = Size.SMALL

    @event(name="order.sent")
    class Shipped:
        carrier: str

    @event
    class Noted:
        text: str

    @command
    def place(self, sku: str, amount: Decimal) -> None:
        if self.status != "new":
            self.refuse("an order is placed once")
        self.emit(self.Placed(order_id=self.id, sku=sku, amount=amount, size=Size.LARGE))
        if amount > self.limit:
            self.refuse(f"{self.total} is too much")

    @command
    def ship(self, carrier: str) -> None:
        self.emit(self.Shipped(carrier=carrier))

    def on_placed(self, e: Placed) -> None:
        self.status, self.size = "placed", e.size
        self.total += e.amount
        self.lines.append(e.sku)

    def on_shipped(self, e: Shipped) -> None:
        self.status = f"sent by {e.carrier}"


class StockItem(Aggregate, category="stock"):
    pass


def test_the_category_is_the_class_name_unless_given() -> None:
    assert (Order.category, StockItem.category) == ("order", "stock")


def test_event_types_have_stable_names() -> None:
    assert set(Order.event_types) == {"order.placed", "order.sent", "order.noted"}
    assert event_type_of(Order.Shipped(carrier="x")).name == "order.sent"


def test_commands_know_their_aggregate() -> None:
    assert aggregate_of(Order.place) is Order
    assert set(Order.commands) == {"place", "ship"}
    with pytest.raises(UnknownAggregate, match="on_placed"):
        aggregate_of(Order.on_placed)


def test_a_decision_gives_events_and_the_state_has_seen_them() -> None:
    order = Order("7")
    emitted = Order.decide(order, Order.place, "tea", amount=Decimal(3))
    assert emitted == [Order.Placed(order_id="7", sku="tea", amount=Decimal(3), size=Size.LARGE)]
    assert (order.status, order.version, order.pending) == ("placed", 0, [])
    assert order.state() == {"status": "placed", "size": Size.LARGE, "total": Decimal(3), "lines": ["tea"]}


def test_a_refusal_carries_the_reason_and_the_stream() -> None:
    with pytest.raises(Refused, match="101 is too much") as refused:
        Order.decide(Order("7"), Order.place, "tea", Decimal(101))
    assert (refused.value.reason, refused.value.place) == ("101 is too much", "order-7")


def test_two_states_share_nothing() -> None:
    one, other = Order("1"), Order("2")
    Order.decide(one, Order.place, "tea", Decimal(1))
    assert (one.lines, other.lines, Order.lines) == (["tea"], [], [])


def test_an_event_without_a_handler_only_counts() -> None:
    order = Order.evolve(Order("1"), Order.Noted(text="call back"))
    assert (order.version, order.status) == (0, "new")


def test_a_foreign_event_is_refused() -> None:
    with pytest.raises(UnknownEventType, match=r"order\.placed"):
        Order.evolve(Order("1"), object())
    with pytest.raises(UnknownEventType, match=r"order\.lost"):
        Order.evolve_plain(Order("1"), "order.lost", {})


def test_plain_values_evolve_like_the_event() -> None:
    plain = {"order_id": "1", "sku": "tea", "amount": Decimal(3), "size": "large"}
    assert Order.evolve_plain(Order("1"), "order.placed", plain).state() == (
        Order.evolve(Order("1"), Order.Placed(order_id="1", sku="tea", amount=Decimal(3), size=Size.LARGE)).state()
    )


def test_a_state_is_restored_from_its_values() -> None:
    order = Order("1")
    Order.decide(order, Order.place, "tea", Decimal(3))
    again = Order.restored(order.state(), id="1", version=order.version)
    assert (again.state(), again.id, again.version) == (order.state(), "1", 0)


def test_state_fields_come_with_their_types() -> None:
    assert Order.state_fields() == {
        "status": str,
        "size": Size | None,
        "total": Annotated[Decimal, Digits(12, 2)],
        "lines": list[str],
    }


def test_events_are_frozen_and_take_keywords_only() -> None:
    noted = Order.Noted(text="a")
    with pytest.raises(AttributeError):
        noted.text = "b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Order.Noted("a")  # type: ignore[misc]


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_aggregates_and_events_travel_to_workers(pickler: Any) -> None:
    order = Order("1")
    emitted = Order.decide(order, Order.place, "tea", Decimal(3))
    kind, state, events = pickle.loads(pickler.dumps((Order, order, emitted)))
    assert (state.state(), events) == (order.state(), emitted)
    assert kind.evolve(state, kind.Shipped(carrier="bike")).status == "sent by bike"


def test_a_class_unknown_to_the_worker_travels_whole() -> None:
    class Local(Aggregate):
        count: int = 0

        @event
        class Counted:
            by: int

        def on_counted(self, e: Counted) -> None:  # type: ignore[name-defined]
            self.count += e.by

    worker = """if True:
        import pickle, sys
        kind = pickle.load(sys.stdin.buffer)
        state = kind.evolve_plain(kind.initial_state("1"), "local.counted", {"by": 2})
        sys.stdout.write(f"{kind.category} {state.count}")
    """
    answer = subprocess.run(
        [sys.executable, "-c", worker], input=cloudpickle.dumps(Local), capture_output=True, check=True
    )
    assert answer.stdout == b"local 2"


def test_a_handler_of_nothing_is_refused() -> None:
    with pytest.raises(UnknownHandler, match=r"on_paid handles no event"):

        class Bill(Aggregate):
            def on_paid(self, e: object) -> None: ...


@pytest.mark.parametrize("hint", [object, set[str], dict[int, str], int | object, tuple[int, ...], complex, Any])
def test_a_field_without_a_place_in_avro_is_refused_by_name(hint: Any) -> None:
    with pytest.raises(UnsupportedFieldType, match="odd") as refused:

        class Bill(Aggregate):
            @event
            class Paid:
                odd: hint

    assert refused.value.place is not None
    assert refused.value.place.endswith("Paid.odd")


class Extra(Flag):
    GIFT = 1
    FRAGILE = 2


class Right(IntFlag):
    READ = 1


@pytest.mark.parametrize("kind", [Extra, Right])
@pytest.mark.parametrize("wrapped", [lambda kind: kind, lambda kind: kind | None, lambda kind: list[kind]])
def test_a_flag_is_refused_since_its_combinations_have_no_name(kind: type, wrapped: Any) -> None:
    with pytest.raises(UnsupportedFieldType, match="is a Flag, whose combinations have no name") as refused:

        class Bill(Aggregate):
            @event
            class Paid:
                odd: wrapped(kind)  # type: ignore[valid-type]

    assert f"list[{kind.__name__}]" in refused.value.remedy


def test_a_field_of_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnsupportedFieldType, match="Missing"):

        class Bill(Aggregate):
            @event
            class Paid:
                amount: Missing  # type: ignore[name-defined]  # noqa: F821


def test_a_state_field_without_a_default_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"'total' of .*Bill has no default"):

        class Bill(Aggregate):
            total: int


def test_a_state_field_that_hides_the_aggregate_is_refused() -> None:
    with pytest.raises(DeclarationError, match="hides a name"):

        class Bill(Aggregate):
            version: int = 3


def test_two_events_of_one_name_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"two events named 'bill\.paid'"):

        class Bill(Aggregate):
            @event
            class Paid:
                amount: int

            @event(name="bill.paid")
            class Settled:
                amount: int


def test_a_class_name_that_makes_no_category_is_refused() -> None:
    with pytest.raises(InvalidIdentifier, match="category"):

        class Bill(Aggregate, category="No Such"):
            pass


def test_an_event_outside_an_aggregate_needs_a_name() -> None:
    @event
    class Nameless:
        number: int

    with pytest.raises(DeclarationError, match="not an event with a type name"):
        event_type_of(Nameless(number=1))
