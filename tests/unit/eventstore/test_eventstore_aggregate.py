"""Aggregates decide and evolve, and inherit commands; mistakes in them are found when the class is defined."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, Flag, IntFlag
from typing import Annotated, Any, ClassVar
from uuid import UUID

import pytest
from pyspark import cloudpickle

from eventstore import Accepted, Dispatcher, MemoryEventStore, Refusal, decider
from eventstore.aggregates.aggregate import Aggregate, aggregate_of, command
from eventstore.errors import (
    DeclarationError,
    InvalidEventData,
    InvalidIdentifier,
    UnknownEventType,
    UnsupportedFieldType,
)
from eventstore.event_types import event, event_type_of
from eventstore.fields.field_types import Digits
from eventstore.snapshots import Snapshots
from eventstore.testing.scenario import given
from tests.errors import raises
from tests.rows import each_row
from tests.unit.eventstore.account import Balance, Deposited, Opened, account, deposit, evolve, look, open_account


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


def test_event_types_have_stable_names() -> None:
    assert set(Order.event_types) == {"order.placed", "order.sent", "order.noted"}
    assert event_type_of(Order.Shipped(carrier="x")).name == "order.sent"


def test_a_decision_gives_events_and_the_state_has_seen_them() -> None:
    order = Order("7")
    emitted = Order.decide(order, Order.place, "tea", amount=Decimal(3))
    assert emitted == [Order.Placed(order_id="7", sku="tea", amount=Decimal(3), size=Size.LARGE)]
    assert (order.status, order.version, order.pending) == ("placed", 0, [])
    assert order.state() == {"status": "placed", "size": Size.LARGE, "total": Decimal(3), "lines": ["tea"]}


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


class Extra(Flag):
    GIFT = 1


class Right(IntFlag):
    READ = 1


def paid(**fields: Any) -> Any:
    return event(type("Paid", (), {"__annotations__": fields, "__module__": __name__, "__qualname__": "Paid"}))


def bill(*, category: str | None = None, **body: Any) -> Any:
    return type("Bill", (Aggregate,), {**body, "__module__": __name__, "__qualname__": "Bill"}, category=category)


def settled() -> Any:
    return event(name="bill.paid")(type("Settled", (), {}))


class Heir(Aggregate, category="heir"):
    @command
    def tell(self) -> None: ...

    def told(self) -> str:
        return self.id


FLAG = "is a Flag, whose combinations have no name"
FLAGS = [hint for kind in (Extra, Right) for hint in (kind, kind | None, list[kind])]  # type: ignore[valid-type]
OWN = ("emit", "refuse", "version", "id", "pending", "stream", "state", "decide", "evolve", "_handlers")
NO_EVENT = command(lambda self: None)
NO_PLACE = [object, set[str], dict[int, str], int | object, tuple[int, ...], complex, Any]
MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: bill(on_paid=lambda self, e: None), DeclarationError, "on_paid handles no event"),
    *((lambda hint=hint: bill(Paid=paid(odd=hint)), UnsupportedFieldType, r"at: .*Paid\.odd") for hint in NO_PLACE),
    *((lambda hint=hint: bill(Paid=paid(odd=hint)), UnsupportedFieldType, rf"{FLAG}.*\n.*list\[") for hint in FLAGS),
    (lambda: bill(Paid=paid(odd="Missing")), UnsupportedFieldType, "Missing"),
    (lambda: bill(__annotations__={"total": int}), DeclarationError, r"'total' of .*Bill has no default"),
    (lambda: bill(__annotations__={"version": int}, version=3), DeclarationError, "hides a name"),
    *((lambda name=name: bill(**{name: NO_EVENT}), DeclarationError, f"'{name}'.*of Aggregate itself") for name in OWN),
    (lambda: bill(Paid=paid(amount=int), category=None, emit=paid(amount=int)), DeclarationError, "event 'emit'"),
    (lambda: bill(restored=type("Kind", (), {})), DeclarationError, "class 'restored'"),
    (lambda: bill(__annotations__={"sum": int}, sum=NO_EVENT), DeclarationError, "of one name, .sum."),
    (lambda: type("Sub", (Heir,), {"told": NO_EVENT}), DeclarationError, "hides a name of .*Heir"),
    (lambda: type("Sub", (Heir,), {"tell": paid(amount=int)}), DeclarationError, "event 'tell' of .*Sub hides"),
    (lambda: bill(Paid=paid(amount=int), Settled=settled()), DeclarationError, r"two events named 'bill\.paid'"),
    (lambda: bill(category="No Such"), InvalidIdentifier, "category"),
]


@each_row(("define", "error", "words"), MISTAKES)
def test_a_mistake_is_found_when_the_class_is_defined(define, error, words):
    with pytest.raises(error, match=words):
        define()


def test_an_event_outside_an_aggregate_needs_a_name() -> None:
    @event
    class Nameless:
        number: int

    with pytest.raises(DeclarationError, match="not an event with a type name"):
        event_type_of(Nameless(number=1))


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
def test_an_inherited_command_is_sent_to_the_streams_of_its_own_class(kind, stream, height):
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
    with raises(DeclarationError, code="unknown-aggregate"):
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


# ---- An aggregate of functions is an aggregate as any other


@pytest.fixture
def store() -> MemoryEventStore:
    return MemoryEventStore()


def test_commands_are_functions_of_the_state(store: MemoryEventStore) -> None:
    dispatcher = Dispatcher(store)
    opened = dispatcher.send("1", open_account, "Ada")
    assert isinstance(opened, Accepted)
    assert opened.command.name == "account.open_account"
    dispatcher.send("1", deposit, Decimal(3), Decimal(4))
    loaded = dispatcher.load(account, "1")
    assert loaded.value == Balance("Ada", Decimal(7))
    assert (loaded.version, str(loaded.stream)) == (2, "account-1")


def test_a_function_refuses_by_raising(store: MemoryEventStore) -> None:
    dispatcher = Dispatcher(store)
    dispatcher.send("1", open_account, "Ada")
    refusal = dispatcher.send("1", open_account, "Bob")
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "it is Ada's"


def test_events_before_a_refusal_in_the_middle_are_not_stored(store: MemoryEventStore) -> None:
    assert isinstance(Dispatcher(store).send("1", deposit, Decimal(3), Decimal(0)), Refusal)
    assert store.head("account-1") is None


def test_a_function_that_returns_nothing_stores_nothing(store: MemoryEventStore) -> None:
    result = Dispatcher(store).send("1", look)
    assert isinstance(result, Accepted)
    assert result.events == ()


def test_its_events_are_named_by_its_category() -> None:
    assert [event_type_of(kind).name for kind in (Opened, Deposited)] == ["account.opened", "account.deposited"]


def test_scenarios_take_it() -> None:
    outcome = given(account, Opened(owner="Ada")).when(deposit, Decimal(2))
    outcome.then(Deposited(amount=Decimal(2))).then_state(owner="Ada", balance=Decimal(2))
    given(account).when(deposit, Decimal(-1)).then_refused("no deposit")


def test_aggregate_snapshots_hold_its_value(store: MemoryEventStore) -> None:
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, every=2))
    dispatcher.send("1", open_account, "Ada")
    dispatcher.send("1", deposit, Decimal(3), Decimal(4))
    assert store.snapshot("account-1") is not None
    assert dispatcher.load(account, "1").value == Balance("Ada", Decimal(7))


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_it_travels_to_workers(pickler: Any) -> None:
    state = account.evolve(account.initial_state("1"), Opened(owner="Ada"))
    kind, found = pickle.loads(pickler.dumps((account, state)))
    assert kind.evolve(found, Deposited(amount=Decimal(1))).value == Balance("Ada", Decimal(1))


def test_one_of_another_name_travels_whole() -> None:
    other = decider("other", initial_state=Balance, evolve=evolve)
    kind = pickle.loads(cloudpickle.dumps(other))
    assert kind.evolve(kind.initial_state(), Opened(owner="Ada")).value.owner == "Ada"


def test_an_aggregate_of_functions_refuses_a_foreign_event() -> None:
    @event(name="foreign.happened")
    class Happened:
        pass

    with pytest.raises(UnknownEventType, match="Happened"):
        account.evolve(account.initial_state("1"), Happened())


def test_an_evolve_that_forgets_to_return_is_told() -> None:
    def forgetful(state: Balance, event: Opened) -> Balance:
        replace(state, owner=event.owner)  # type: ignore[return]

    made = decider("forgetful", initial_state=Balance, evolve=forgetful)
    with pytest.raises(DeclarationError, match="returned no state for Opened"):
        made.evolve(made.initial_state("1"), Opened(owner="Ada"))


def test_a_command_that_returns_no_event_is_told(store: MemoryEventStore) -> None:
    def count(state: Balance) -> int:
        return 3

    decider("counted", initial_state=Balance, evolve=evolve, decide=[count])
    with pytest.raises(InvalidEventData, match="returned 3, which is no event"):
        Dispatcher(store).send("1", count)


def untyped(state: Balance, event: Any) -> Balance:
    return state


def single(state: Balance) -> Balance:
    return state


def counting(state: int, event: Opened) -> int:
    return state + 1


@dataclass(frozen=True)
class Odd:
    what: Missing = None  # type: ignore[name-defined]  # noqa: F821


def keep(state: Odd, event: Opened) -> Odd:
    return state


@each_row(
    ("category", "initial", "evolve", "decide", "words"),
    [
        ("untyped", Balance, untyped, [], "does not say which events it takes"),
        ("untyped", Balance, single, [], "does not say which events it takes"),
        ("counted", int, counting, [], "the state of counted is a int"),
        ("odd", Odd, keep, [], "'Missing' is not defined"),
        ("savings", Balance, evolve, [deposit], "deposit is a command of account already"),
    ],
)
def test_a_mistake_is_found_when_it_is_declared(category, initial, evolve, decide, words):
    with pytest.raises(DeclarationError, match=words):
        decider(category, initial_state=initial, evolve=evolve, decide=decide)
