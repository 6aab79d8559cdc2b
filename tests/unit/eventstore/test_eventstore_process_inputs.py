"""Inputs of processes that are not what they were written as: of former versions, split, personal, of every type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest

from eventstore import ANY, Aggregate, Personal, SqlEventStore, command, event
from eventstore.errors import DeclarationError
from eventstore.fields.upcasting import Cast, Drop, Rename
from eventstore.processes import Process, compensated, functional, late, reacts, replies, starts, times_out
from eventstore.processes.running import open_process
from eventstore.testing.processes import accepted, clock, expired, given
from eventstore.testing.processes import command as sent
from tests.shipments import First, Shipment
from tests.unit.eventstore.fulfilment import Item, Order

SECRET = "Zuckmayer"
PHONE = "4170314159265"  # long: the texts looked through hold identifiers of random digits


class Halves(Process):
    """Reacts to one half of a split event, and starts by the other."""

    seen: str = ""

    @reacts(Shipment.Paid)
    def paid(self, event: Shipment.Paid) -> None:
        self.seen += "paid "

    @starts(Shipment.Sent)
    def sent(self, event: Shipment.Sent) -> None:
        self.seen += "sent "


class Both(Process):
    seen: str = ""

    @starts(Shipment.Ordered)
    def ordered(self) -> None:
        self.seen += "ordered "

    @reacts(Shipment.Paid)
    def paid(self) -> None:
        self.seen += "paid "

    @reacts(Shipment.Sent)
    def sent(self) -> None:
        self.seen += "sent "


def deliver(store: SqlEventStore, kind: type[Process]) -> None:
    with open_process(store, kind, attempts=1) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        assert subscriber.report.dead == 0


def loaded(store: SqlEventStore, kind: type[Process], id: str) -> Any:
    process = kind(id)
    kind.fold(process, list(store.read_stream(f"{kind.category}-{id}")))
    return process


@pytest.fixture
def store(keyed_store: SqlEventStore) -> SqlEventStore:
    return keyed_store


@pytest.mark.parametrize(("kind", "seen"), [(Halves, "sent paid "), (Both, "ordered paid sent ")])
def test_each_half_of_a_split_event_that_comes_before_the_start_is_handled_once(store, kind, seen):
    from tests.shipments import ORDERED_TODAY

    store.append("shipment-1", [First.PaidAndSent(amount=31, carrier="sea"), ORDERED_TODAY], expected=ANY)
    deliver(store, kind)
    assert loaded(store, kind, "1").seen == seen


class Former(Aggregate, category="caller"):
    @event
    class Called:
        phone: Annotated[str, Personal(erased="")]
        nick: Annotated[str, Personal(erased="nobody")]
        line: int


class Caller(Aggregate):
    @event(upcasters={1: [Cast("phone", int), Rename("phone", to="number"), Drop("nick")]})
    class Called:
        number: Annotated[int, Personal(erased=-1)]
        line: int

    @event
    class Opened:
        pass


class Line(Process):
    number: int = 0

    @starts(Caller.Called)
    def called(self, event: Caller.Called) -> None:
        self.number = event.number


class Early(Process):
    number: int = 0

    @starts(Caller.Opened)
    def opened(self) -> None: ...

    @reacts(Caller.Called)
    def called(self, event: Caller.Called) -> None:
        self.number = event.number


@pytest.mark.parametrize("erased", [False, True])
@pytest.mark.parametrize("kind", [Line, Early])
def test_a_personal_field_of_a_former_version_is_neither_seen_nor_recorded(store, kind, erased):
    store.append("caller-7", [Former.Called(phone=PHONE, nick=SECRET, line=2), Caller.Opened()], expected=ANY)
    if erased:
        store.erase("7")
    deliver(store, kind)
    assert loaded(store, kind, "7").number == -1
    recorded = [str(one.data) for one in store.read_stream(f"{kind.category}-7")]
    assert not [text for text in recorded if SECRET in text or PHONE in text]


def test_a_store_without_keys_delivers_personal_fields_of_former_versions_too(store, store_url):
    store.append("caller-7", [Former.Called(phone=PHONE, nick=SECRET, line=2), Caller.Opened()], expected=ANY)
    with SqlEventStore(store_url) as keyless:
        deliver(keyless, Early)
        assert loaded(keyless, Early, "7").number == -1


class Plan(Enum):
    BASIC = "basic"
    LARGE = "large"


@dataclass(frozen=True)
class Address:
    street: str
    since: date
    rent: Decimal | None = None


class Every(Aggregate):
    @event
    class Began:
        pass

    @command
    def take(
        self, number: int, rate: float, yes: bool, price: Decimal, key: UUID, at: datetime, day: date, raw: bytes,
        plan: Plan, home: Address, homes: list[Address], prices: dict[str, Decimal], perhaps: Address | None = None,
    ) -> None: ...  # fmt: skip


VALUES: dict[str, Any] = {
    "number": -(2**63),
    "rate": -0.0,
    "yes": True,
    "price": Decimal("1.20"),
    "key": UUID(int=7),
    "at": datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
    "day": date(2026, 1, 1),
    "raw": b"\x00\xff",
    "plan": Plan.LARGE,
    "home": Address("$a", date(2026, 1, 1), Decimal("-0.10")),
    "homes": [Address("\n", date(1, 1, 1))],
    "prices": {"$time": Decimal(1), "": Decimal(2)},
    "perhaps": None,
}


class State(Process, sends=[Every]):
    number: int = 0
    rate: float = 0.0
    yes: bool = False
    price: Decimal = Decimal(0)
    key: UUID = UUID(int=0)
    at: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    day: date = date(2000, 1, 1)
    raw: bytes = b""
    plan: Plan = Plan.BASIC
    home: Address = Address("", date(2000, 1, 1))
    homes: list[Address] = []  # noqa: RUF012
    prices: dict[str, Decimal] = {}  # noqa: RUF012
    perhaps: Address | None = Address("", date(2000, 1, 1))

    @starts(Every.Began)
    def began(self) -> None:
        for name, value in VALUES.items():
            setattr(self, name, value)
        self.send(self.id, Every.take, **VALUES)


def test_state_and_arguments_of_every_type_come_back_as_they_were():
    given(State).when(Every.Began()).then(state=VALUES, commands=[sent("1", Every.take, **VALUES)])


class Hurried(Process, sends=[Item]):
    heard: str = ""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.send(event.sku, Item.close).expiring(timedelta(minutes=1))

    @replies(Item.close)
    def closed(self, reply: Any) -> None:
        self.heard = reply.outcome


PLACED = Order.Placed(sku="tea", quantity=1, amount=Decimal(1))


def test_the_test_kit_lets_a_command_expire():
    given(Hurried, PLACED).when(expired(Item.close)).then(state={"heard": "expired"})


def test_the_test_kit_takes_no_step_for_a_reply_that_nothing_waits_for():
    sent_alone = given(Hasty, PLACED)
    assert len(sent_alone.when(accepted(Order.cancel)).steps) == len(sent_alone.steps)


class Unsent(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.send("tea", Item.close).undone_by(Order.cancel, reason="?")


def test_a_compensation_of_an_aggregate_that_is_not_sent_to_is_refused_when_it_is_decided():
    with pytest.raises(DeclarationError, match=r"Unsent does not say that it sends order\.cancel"):
        given(Unsent).when(PLACED)


class Invoice(Aggregate):
    @event
    class Placed:
        pass


Invoice.Placed.__qualname__ = Order.Placed.__qualname__  # as of a class Order in another module


@dataclass(frozen=True)
class Count:
    n: int = 0


def count(state: Count, given: object) -> tuple[Count, list[functional.Decision]]:
    closing = functional.send("tea", Item.close)
    late = functional.expiring(functional.delayed(closing, timedelta(hours=1)), timedelta(minutes=5))
    return Count(state.n + 1), [late]


def test_a_process_of_functions_takes_events_of_one_class_name_and_sends_later():
    counting = functional.process_of(
        "counting",
        initial_state=Count,
        decide=count,
        starts={Order.Placed: None},
        reacts={Order.Placed: None, Invoice.Placed: None},
        sends=[Item],
    )
    counted = given(counting, PLACED).when(Invoice.Placed()).then(state={"n": 2}, commands=[sent("tea", Item.close)])
    (closing,) = counted.commands
    assert (closing.due - counted.now, closing.expires - closing.due) == (timedelta(hours=1), timedelta(minutes=5))


class Restless(Process, sends=[Item]):
    """Decides again and again about one timer, in one handler."""

    rang: int = 0

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.timeout("bell", after=timedelta(minutes=1))
        self.cancel("bell")
        self.timeout("bell", after=timedelta(minutes=5))
        self.timeout("bell", after=timedelta(minutes=3))

    @times_out("bell")
    def ring(self) -> None:
        self.rang += 1
        if self.rang == 1:
            self.timeout("bell", after=timedelta(minutes=3))


def test_the_last_word_about_a_timer_counts():
    rung = given(Restless, PLACED).when(clock.advance("2m 59s")).then(timers=["bell"], state={"rang": 0})
    again = rung.when(clock.advance("1s")).then(timers=["bell"], state={"rang": 1})
    again.when(clock.advance("3m")).then(timers=[], state={"rang": 2})


class Hasty(Process, sends=[Item, Order]):
    """Gives up in its start, twice, and says that it is done."""

    notes: str = ""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.send("tea", Item.close)
        self.compensate("first")
        self.compensate("second")
        self.done()

    @compensated
    def undone(self) -> None:
        self.notes += "undone "
        self.send(self.id, Order.cancel, reason="given up")

    @late(Order.Shipped)
    def shipped(self) -> None:
        self.notes += "late "
        self.compensate("again")


def test_a_process_that_gives_up_in_its_start_is_undone_once():
    undone = given(Hasty).when(PLACED)
    undone.then(
        commands=[sent("tea", Item.close), sent("1", Order.cancel, reason="given up")],
        state={"notes": "undone "},
        status="compensated",
    )
    undone.when(Order.Shipped(carrier="Post")).then(state={"notes": "undone late "}, status="compensated")
