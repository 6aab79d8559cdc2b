"""Steps of a process by the test kit, which needs no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from eventstore import Aggregate, SqlEventStore, event
from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.event_types import event_type_of
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.tracing import trace
from eventstore.processes import Process, functional, late, reacts, replies, starts, times_out
from eventstore.processes.errors import ProcessAlreadyStarted, ProcessError, ProcessStuck
from eventstore.processes.process import impersonal
from eventstore.testing.processes import accepted, clock, command, given, refused
from tests.conformance.process_shop import Shop
from tests.errors import raises
from tests.rows import each_row
from tests.unit.eventstore.customer import Customer
from tests.unit.eventstore.fulfilment import PAID, PLACED, Fulfilment, Item, Order, Payment

RESERVE = command("tea", Item.reserve, order_id="o1", quantity=2)
RELEASE = command("tea", Item.release, order_id="o1", quantity=2)
CANCEL = command("o1", Order.cancel, reason="not paid, or not there")
SHIP = command("o1", Order.ship, carrier="Post")


RESERVED = (PLACED, accepted(Item.reserve))
LATE = (*RESERVED, clock.advance("31m"))
RUN: dict[str, tuple[Sequence[object], object, dict[str, Any]]] = {
    "a start sends commands and sets timers": (
        (), PLACED, {"commands": [RESERVE], "timers": ["payment"], "state": {"amount": 9}, "status": "running"}),
    "an event in time takes the timer back and ends the process": (
        RESERVED, PAID, {"commands": [SHIP], "timers": [], "status": "done"}),
    "a timer does not fire before its time": (
        RESERVED, clock.advance("29m 59s"), {"timers": ["payment"], "status": "running"}),
    "a timer that is due compensates what was accepted": (
        RESERVED, clock.advance("30m"), {"commands": [RELEASE], "timers": [], "status": "compensating"}),
    "the last compensation ends it": (LATE, accepted(Item.release), {"commands": [CANCEL], "status": "compensated"}),
    "a step that was not sent yet is withdrawn and not undone": (
        (PLACED,), clock.advance("31m"), {"commands": [CANCEL], "status": "compensated"}),
    "a refused step is not undone": (
        (PLACED,), refused(Item.reserve, "only 0 left"), {"commands": [CANCEL], "state": {"reserved": False}}),
    "an event behind the end goes to its late handler": (
        (PLACED, clock.advance("31m")), PAID,
        {"commands": [command("p-o1", Payment.refund)], "state": {"refunds": 1}, "status": "compensated"}),
    "an event before the start waits": ((), PAID, {"status": "unstarted"}),
    "and is handled after it": (
        (PAID,), PLACED, {"commands": [RESERVE], "timers": [], "state": {"paid": True}, "status": "running"}),
    "and counts": ((PAID, PLACED), accepted(Item.reserve), {"commands": [SHIP], "status": "done"}),
}  # fmt: skip


@each_row("what", RUN)
def test_a_run_of_the_process(what: str) -> None:
    past, now, then = RUN[what]
    given(Fulfilment, *past, id="o1").when(now).then(**then)


def test_a_refused_compensation_is_a_state_that_says_why():
    found = given(Fulfilment, *LATE, id="o1").when(refused(Item.release, "closed")).then(status="compensation_failed")
    assert found.process().standing.problem == "item.release, which undoes item.reserve, was refused: closed"


def test_a_second_start_is_refused():
    with pytest.raises(ProcessAlreadyStarted, match=r"order\.placed would start fulfilment-o1"):
        given(Fulfilment, PLACED, id="o1").when(PLACED)


class Both(Process, sends=[Item]):
    """Three steps, whose compensations come in reverse order of acceptance."""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        for sku in ("a", "b", "c"):
            self.send(sku, Item.reserve, order_id=self.id, quantity=1).undone_by(
                Item.release, order_id=self.id, quantity=1
            )
        self.timeout("wait", at=datetime(2020, 1, 1, tzinfo=UTC))

    @times_out("wait")
    def waited(self) -> None:
        self.compensate("waited")


def test_compensations_come_in_reverse_order_each_after_the_reply_to_the_last():
    found = given(Both, PLACED, accepted(Item.reserve), accepted(Item.reserve), accepted(Item.reserve))
    found = found.when(clock.advance("1s"))
    for sku in ("c", "b", "a"):
        undo = command(sku, Item.release, order_id="1", quantity=1)
        found = found.then(commands=[undo], status="compensating").when(accepted(Item.release))
    found.then(commands=[], status="compensated")


def test_commands_of_different_steps_have_different_ids():
    undoing = given(Both, PLACED, *[accepted(Item.reserve)] * 3, clock.advance("1s"))
    done = undoing.when(accepted(Item.release)).when(accepted(Item.release))
    ids = [sent.id for step in done.steps for sent in step.sent]
    assert len(set(ids)) == len(ids) == 6


def test_a_timer_in_the_past_is_due_at_once():
    given(Both, PLACED).when(clock.advance("0s")).then(timers=[], status="compensated")


class Strict(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.send(event.sku, Item.reserve, order_id=self.id, quantity=1)


def test_a_refusal_that_nothing_handles_is_a_problem_of_the_process():
    found = given(Strict, PLACED).when(refused(Item.reserve, "none left"))
    assert found.process().standing.problem == "item.reserve was refused: none left"


class Rounds(Process, max_steps=5):
    n: int = 0

    @starts(Order.Placed)
    @reacts(Order.Placed)
    def again(self, event: Order.Placed) -> None:
        self.n += 1


def test_a_process_in_a_circle_ends_with_an_error():
    found = given(Rounds, *[PLACED] * 4)
    assert found.process().n == 4
    with raises(ProcessStuck, code="too-many-steps", match="rounds-1 took 5 steps"):
        found.when(PLACED, PLACED)


class Wrong(Process):
    why: str = ""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        match self.why or event.sku:
            case "unknown timer":
                self.timeout("nothing", after=timedelta(1))
            case "no time":
                self.timeout("known")
            case "zone":
                self.timeout("known", at=datetime(2026, 1, 1))
            case "negative":
                self.timeout("known", after=timedelta(-1))
            case "foreign":
                self.send("1", Item.close)
            case "emit":
                self.emit(PLACED)
            case "state":
                self.why = 7  # type: ignore[assignment]

    @times_out("known")
    def known(self) -> None: ...


@pytest.mark.parametrize(
    ("why", "error", "says"),
    [
        ("unknown timer", DeclarationError, "no handler for the timer 'nothing'"),
        ("no time", InvalidEventData, "after some time or at a moment"),
        ("zone", InvalidEventData, "has no time zone"),
        ("negative", InvalidEventData, "a timer is datetime.timedelta"),
        ("foreign", DeclarationError, "does not say that it sends item.close"),
        ("emit", DeclarationError, "no events but its steps"),
        ("state", InvalidEventData, "does not fit state field why of Wrong"),
    ],
)
def test_what_a_handler_cannot_do_is_refused(why, error, says):
    with pytest.raises(error, match=says):
        given(Wrong).when(Order.Placed(sku=why, quantity=1, amount=Decimal(1)))


def test_nothing_is_decided_outside_of_a_handler():
    with pytest.raises(DeclarationError, match="decides outside of a handler"):
        Fulfilment("1").timeout("payment", after=timedelta(1))


class Ended(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.send(event.sku, Item.reserve, order_id=self.id, quantity=2).undone_by(
            Item.release, order_id=self.id, quantity=2
        )
        self.done()

    @replies(Item.reserve)
    def answered(self) -> None: ...

    @late(Payment.Received, id="order_id")
    def paid(self, event: Payment.Received) -> None:
        if event.amount == 1:
            self.timeout("never", after=timedelta(1))
        elif event.amount == 2:
            self.send("tea", Item.reserve, order_id=self.id, quantity=1).undone_by(Item.close)
        else:
            self.compensate("paid too late")

    @times_out("never")
    def never(self) -> None: ...


def test_a_process_that_has_ended_undoes_but_waits_for_nothing_more():
    ended = given(Ended, PLACED, accepted(Item.reserve), id="o1").then(commands=[], status="done")
    with pytest.raises(ProcessError, match="sets the timer 'never', and the process is done"):
        ended.when(Payment.Received(order_id="o1", amount=Decimal(1)))
    with pytest.raises(ProcessError, match="sends a command that can be undone, and the process is done"):
        ended.when(Payment.Received(order_id="o1", amount=Decimal(2)))
    undoing = ended.when(Payment.Received(order_id="o1", amount=Decimal(3)))
    undoing.then(commands=[RELEASE], status="compensating").when(accepted(Item.release)).then(status="compensated")


class Ids(Aggregate):
    @event
    class Made:
        number: int
        key: UUID
        text: str | None
        amount: Decimal
        plan: Enum("Plan", "BASIC LARGE")  # type: ignore[valid-type]
        at: datetime


def declared(*decorators: Any, handler: Any = None, **body: Any) -> Any:
    """A process whose handlers have these decorators, one each."""
    options = {name: body.pop(name) for name in ("version", "earlier", "sends") if name in body}
    handlers = {f"on{n}": one(handler or (lambda self: None)) for n, one in enumerate(decorators)}
    return type("Odd", (Process,), {**handlers, **body, "__module__": __name__, "__qualname__": "Odd"}, **options)


async def waiting_handler(self: Any) -> None: ...


PLAIN = starts(Order.Placed)
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: declared(reacts(Order.Placed)), "has no start"),
    (lambda: declared(starts(Order.Placed, id="order")), "'order', which is no clear text, number or UUID of order.pl"),
    (lambda: declared(PLAIN, PLAIN), "handles the same as"),
    (lambda: declared(starts(object)), "which is no event"),
    (lambda: declared(PLAIN, handler=waiting_handler), "coroutine"),
    (lambda: declared(PLAIN, __annotations__={"standing": str}, standing=""), "hides a name of Process"),
    *((lambda name=name: declared(PLAIN, **{name: PLAIN(lambda self: None)}), f"handler '{name}' of Odd hides")
      for name in ("send", "timeout", "done", "cause", "now", "standing", "decided", "emit")),
    (lambda: declared(PLAIN, version=2, earlier=[Fulfilment]), "is no earlier version"),
    (lambda: declared(PLAIN, replies(Item.close)), r"does not say that it sends item\.close"),
    *((lambda name=name: declared(starts(Ids.Made, id=name)), f"'{name}', which is no clear text, number or UUID")
      for name in ("amount", "plan", "at")),
]  # fmt: skip


@each_row(("declare", "message"), MISTAKES)
def test_declarations_that_cannot_work_are_refused(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare()


def test_an_id_is_a_text_a_number_or_a_uuid() -> None:
    assert declared(starts(Ids.Made, id="number"), reacts(Ids.Made, id="key"), late(Ids.Made, id="text"))


def test_a_process_reads_events_of_several_aggregates():
    assert Fulfilment.reactions.categories == {"order", "payment"}


class Greeting(Process):
    name: str = ""

    @starts(Customer.Registered)
    def registered(self, event: Customer.Registered) -> None:
        self.name = event.name


def test_a_process_never_sees_a_personal_value_and_records_none():
    kind = event_type_of(Customer.Registered)
    addressed = Greeting.reactions.addressed("customer.registered", 1, {"name": "Ann"}, "7")
    ((shown,),) = addressed.values()
    assert shown.event == Customer.Registered(name="(erased)")
    assert impersonal(kind, {"name": "Ann"}) == {"name": "(erased)"}


@dataclass(frozen=True)
class Waiting:
    amount: Decimal = Decimal(0)
    given_up: bool = False


def decide(state: Waiting, given: object) -> tuple[Waiting, list[functional.Decision]]:
    match given:
        case Order.Placed(sku=sku):
            reserve = functional.send(sku, Item.reserve, order_id="o1", quantity=2)
            undo = functional.undone_by(reserve, Item.release, order_id="o1", quantity=2)
            return state, [undo, functional.set_timer("payment", after=timedelta(minutes=30))]
        case Payment.Received(amount=amount):
            return replace(state, amount=amount), [functional.take_back("payment"), functional.done()]
        case functional.TimeOut("payment"):
            return state, [functional.compensate("late")]
        case functional.Compensated():
            return replace(state, given_up=True), []
    return state, []


def test_a_process_of_functions_decides_as_one_of_methods_does():
    waiting = functional.process_of(
        "waiting",
        initial_state=Waiting,
        decide=decide,
        starts={Order.Placed: None},
        reacts={Payment.Received: "order_id"},
        timers=["payment"],
        sends=[Item],
    )
    ready = given(waiting, PLACED, accepted(Item.reserve), id="o1")
    ready.when(PAID).then(state={"amount": Decimal(9)}, timers=[], status="done")
    undoing = ready.when(clock.advance("31m")).then(commands=[RELEASE], state={"given_up": False})
    undoing.when(accepted(Item.release)).then(state={"given_up": True}, status="compensated")


class Ledger(Process):
    """Notes where its inputs came from."""

    causes: str = ""

    @starts(Order.Placed)
    def placed(self) -> None:
        self.causes += f"{self.cause.name} "

    @reacts(Payment.Received, id="order_id")
    def paid(self) -> None:
        self.causes += f"{self.cause.name} "


def test_a_handler_of_an_event_that_came_before_the_start_sees_that_event_as_its_cause():
    given(Ledger, PAID, id="o1").when(PLACED).then(state={"causes": "order.placed payment.received "})


def test_an_event_of_another_instance_is_an_error_of_the_test():
    with pytest.raises(InvalidEventData, match="not for Fulfilment 'o2', but for o1"):
        given(Fulfilment, PLACED, id="o2").when(PAID)


# ---- Traces of processes: what a step decided stands below it, over commands, replies and timers


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    with SqlEventStore(store_url) as store:
        yield Shop(store)


def tree(shop: Shop) -> list[str]:
    (placed, *_) = shop.store.read_stream("order-o1")
    found = trace(placed.metadata.correlation_id, [StoreLog(shop.store)])
    return [f"{'  ' * step.depth}{step.name}" for step in found.steps]


def test_a_time_out_is_traced_from_the_placing_to_the_cancellation(shop):
    shop.stock(5)
    shop.place("o1")
    shop.deliver()
    shop.worker().drain()
    shop.pass_time(minutes=31)
    shop.worker().drain()
    assert tree(shop) == [
        "None",  # the name of a command that is sent once is not recorded
        "  order.placed",
        "    process.stepped",
        "      item.reserve",
        "        item.reserved",
        "        process.stepped",
        "      timer.payment",
        "        process.stepped",
        "          item.release",
        "            item.released",
        "            process.stepped",
        "              order.cancel",
        "                order.cancelled",
    ]


def test_a_refused_command_stands_in_the_trace_although_it_has_no_event(shop):
    shop.place("o1")
    shop.deliver()
    shop.worker().drain()
    assert tree(shop)[2:] == [
        "    process.stepped",
        "      item.reserve",
        "        process.stepped",
        "          order.cancel",
        "            order.cancelled",
    ]


class Stocking(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.send("first", Item.receive, quantity=1)

    @reacts(Payment.Received, id="order_id")
    def paid(self) -> None:
        self.send("second", Item.receive, quantity=1)


def test_what_two_steps_of_one_batch_decided_stands_below_its_own_step(shop):
    shop = Shop(shop.store, Stocking)
    shop.place("o1")
    shop.pay("o1")
    shop.deliver()
    shop.worker().drain()
    steps = list(shop.store.read_stream("stocking-o1"))
    received = [event for item in ("first", "second") for event in shop.store.read_stream(f"item-{item}")]
    assert [event.metadata.causation_id.split()[-1] for event in received] == [str(step.id) for step in steps]
