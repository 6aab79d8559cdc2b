"""Recorded commands decided again by changed code: what would be refused, emitted otherwise, or cannot be read."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Annotated

import pytest

from eventstore import (
    ANY,
    Aggregate,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    Personal,
    SqlEventStore,
    command,
    decider,
    event,
)
from eventstore.delivery.source import MASK
from eventstore.errors import KeysMissing
from eventstore.inspection.deciding import DecidedAgain, Decision, Difference, Outcome, decide_again
from tests.commands import factfold

NUMBERS = count()


def order(*, most=10, fee=0, with_note=True, upper=False, fails=False, without_by=False):
    """The aggregate as some release has it."""

    class Order(Aggregate, category="order"):
        total: int = 0

        @event
        class Placed:
            amount: int
            number: int

        @event
        class Noted:
            text: str

        if without_by:

            @event
            class Settled: ...

        else:

            @event
            class Settled:
                by: str

        @command
        def place(self, *, amount: int) -> None:
            if fails:
                raise LookupError("no price list")
            if self.total + amount > most:
                self.refuse(f"{self.total} and {amount} are more than {most}")
            self.emit(self.Placed(amount=amount + fee, number=next(NUMBERS)))
            if with_note:
                self.emit(self.Noted(text=f"total {self.total}"))

        @command
        def settle(self, *, by: str) -> None:
            self.emit(self.Settled() if without_by else self.Settled(by=by.upper() if upper else by))

        def on_placed(self, e: Placed) -> None:
            self.total += e.amount

    return Order


@pytest.fixture
def store():
    store, deployed = MemoryEventStore(), order()
    store.append("order-o1", [deployed.Noted(text="imported")], expected=ANY)
    kept = Dispatcher(store, keep_commands=True)
    kept.send_or_raise("o1", deployed.place, amount=3)
    kept.send_or_raise("o2", deployed.place, amount=4)
    kept.send_or_raise("o1", deployed.place, amount=5)
    assert kept.send("o1", deployed.place, amount=5).reason
    Dispatcher(store).send_or_raise("o1", deployed.place, amount=1)
    kept.send_or_raise("o1", deployed.settle, by="ann")
    return store


again = partial(decide_again, ignore=["order.placed.number"])


def test_the_same_code_decides_the_same_and_writes_nothing(store):
    before = list(store.read_all())
    told = []
    found = again(store, order(), on_progress=lambda *done: told.append(done))
    assert found == DecidedAgain(counts={Outcome.EQUAL: 4}, not_recorded=3)
    assert (told, list(store.read_all())) == ([(10, 10)], before)


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"most": 6}, Decision("order-o1", 3, "order.place", Outcome.REFUSED, "3 and 5 are more than 6")),
        ({"upper": True}, Decision("order-o1", 7, "order.settle", Outcome.DIFFERS,
                                   differences=(Difference("order.settled", "by", "ann", "ANN"),))),
        ({"without_by": True}, Decision("order-o1", 7, "order.settle", Outcome.DIFFERS,
                                        differences=(Difference("order.settled", "by", "ann", None),))),
        ({"with_note": False}, Decision("order-o1", 1, "order.place", Outcome.DIFFERS,
                                        differences=(Difference("order.noted", None, "order.noted", None),))),
        ({"fails": True}, Decision("order-o1", 1, "order.place", Outcome.FAILS, "LookupError: no price list")),
    ],
)  # fmt: skip
def test_changed_code_is_found_on_the_state_of_its_time(store, changed, finding):
    found = again(store, order(**changed))
    assert finding in found.findings
    assert found.counts[finding.outcome] == len(found.findings)


def test_what_a_clock_or_chance_gives_differs_unless_it_is_ignored(store):
    found = decide_again(store, order())
    assert {one.field for finding in found.findings for one in finding.differences} == {"number"}


def test_only_commands_from_a_time_on_are_decided_on_states_of_all_events(store):
    first = next(iter(store.read_stream("order-o1", from_version=3)))
    found = again(store, order(most=6), since=first.time)
    assert (found.counts[Outcome.REFUSED], found.findings[0].reason) == (1, "3 and 5 are more than 6")
    assert again(store, order(most=6), since=first.time + timedelta(days=1)) == DecidedAgain()


def test_a_command_that_the_code_does_not_take_any_more_is_unreadable(store):
    class Order(Aggregate, category="order"):
        Placed, Noted, Settled = (order().event_types[f"order.{one}"].cls for one in ("placed", "noted", "settled"))

        @command
        def place(self, *, amount: int, currency: str) -> None: ...

    reasons = {one.command: one.reason for one in again(store, Order).findings}
    assert "does not take these arguments: missing a required argument: 'currency'" in reasons["order.place"]
    assert reasons["order.settle"] == "the code cannot read the command: there is no command order.settle"


def test_commands_after_events_that_do_not_fold_are_unreadable(store):
    class Order(order(), category="order"):
        def on_noted(self, e):
            raise ValueError("no")

    found = again(store, Order)
    assert found.counts == {Outcome.UNREADABLE: 3, Outcome.FAILS: 1}


@dataclass(frozen=True)
class Account:
    balance: int = 0


@event(name="account.deposited")
class Deposited:
    amount: int


def account(*, bonus=0):
    def evolve(state: Account, event: Deposited) -> Account:
        return replace(state, balance=state.balance + event.amount)

    def deposit(state: Account, amount: int) -> list[object]:
        return [Deposited(amount=amount + (bonus if state.balance else 0))]

    return decider("account", initial_state=Account, evolve=evolve, decide=[deposit]), deposit


def test_aggregates_of_functions_are_decided_again_too():
    store, (deployed, deposit) = MemoryEventStore(), account()
    for amount in (1, 2):
        Dispatcher(store, keep_commands=True).send_or_raise("a", deposit, amount)
    assert decide_again(store, deployed).counts == {Outcome.EQUAL: 2}
    changed, _ = account(bonus=5)
    difference = Difference("account.deposited", "amount", 2, 7)
    assert decide_again(store, changed).findings == [
        Decision("account-a", 1, "account.deposit", Outcome.DIFFERS, differences=(difference,))
    ]


def customer(*, title="", longest=99):
    class Customer(Aggregate, category="customer"):
        name: str = ""

        @event
        class Registered:
            name: Annotated[str, Personal(erased="(erased)")]

        @command
        def register(self, name: str) -> None:
            if len(name) > longest:
                self.refuse(f"the name {name} is too long")
            self.emit(self.Registered(name=title + name))

        def on_registered(self, e: Registered) -> None:
            self.name = e.name

    return Customer


def test_personal_values_are_masked_and_commands_of_the_erased_are_not_decided(tmp_path):
    with SqlEventStore(f"sqlite:///{tmp_path}/shop.db", keys=MasterKeys({"one": bytes(32)})) as store:
        store.create_tables()
        for number, name in enumerate(("Adalbert", "Bob")):
            Dispatcher(store, keep_commands=True).send_or_raise(f"c{number}", customer().register, name)
        titled = decide_again(store, customer(title="Dr. ", longest=3))
        assert titled.findings == [
            Decision("customer-c0", 0, "customer.register", Outcome.REFUSED, f"the name {MASK} is too long"),
            Decision("customer-c1", 0, "customer.register", Outcome.DIFFERS,
                     differences=(Difference("customer.registered", "name", MASK, MASK),)),
        ]  # fmt: skip
        with SqlEventStore(store.engine) as closed, pytest.raises(KeysMissing):
            decide_again(closed, customer())
        store.erase("c0")
        assert decide_again(store, customer()).counts == {Outcome.ERASED: 1, Outcome.EQUAL: 1}


def test_a_category_without_its_keys_is_named_and_the_others_are_decided(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "decided_partly.py").write_text(SERVICE + PERSONAL)
    importlib.invalidate_caches()
    url = f"sqlite:///{tmp_path}/shop.db"
    with SqlEventStore(url, keys=MasterKeys({"one": bytes(32)})) as store:
        store.create_tables()
        module, kept = importlib.import_module("decided_partly"), Dispatcher(store, keep_commands=True)
        kept.send_or_raise("c1", module.Customer.register, "Ann")
        kept.send_or_raise("o1", module.Order.place, amount=3)
    result = factfold("decide", "again", "decided_partly", "--store-url", url)
    assert result.exit_code == 3
    assert [line.partition(":")[::2] for line in result.stdout.splitlines()][1:] == [
        ("order", " 1 equal, 0 events without a recorded command")
    ]
    assert result.stdout.startswith("customer: not decided: ")


SERVICE = """
from typing import Annotated

from eventstore import Aggregate, Personal, command, event


class Order(Aggregate):
    @event
    class Placed:
        amount: int

    @command
    def place(self, *, amount: int) -> None:
        self.emit(self.Placed(amount=amount))
"""

PERSONAL = """

class Customer(Aggregate):
    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]

    @command
    def register(self, name: str) -> None:
        self.emit(self.Registered(name=name))
"""


def test_the_command_shows_what_is_decided_otherwise_with_exit_code_3(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (
        ("decided_as_ever", SERVICE),
        ("decided_anew", f"print('loaded')\n{SERVICE}".replace("(amount=amount)", "(amount=2)")),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    url = f"sqlite:///{tmp_path}/shop.db"
    with SqlEventStore(url) as store:
        store.create_tables()
        module = importlib.import_module("decided_as_ever")
        Dispatcher(store, keep_commands=True).send_or_raise("o1", module.Order.place, amount=3)
    same = factfold("decide", "again", "decided_as_ever", "--store-url", url, "--category", "order")
    assert (same.exit_code, same.stdout) == (0, "order: 1 equal, 0 events without a recorded command\n")
    changed = factfold("decide", "again", "decided_anew", "--store-url", url)
    assert changed.exit_code == 3
    assert changed.stdout.splitlines()[:2] == [
        "order-o1@0 order.place differs", "  order.placed.amount: 3 was recorded, 2 now"
    ]  # fmt: skip
    told = json.loads(factfold("decide", "again", "decided_anew", "--store-url", url, "--json").stdout)
    difference = {"event": "order.placed", "field": "amount", "recorded": 3, "decided": 2}
    (finding,) = told["categories"]["order"]["findings"]
    assert (told["same"], finding["outcome"], finding["differences"]) == (False, "differs", [difference])
    missing = factfold("decide", "again", "decided_anew", "--store-url", url, "--category", "box")
    assert missing.exit_code == 1
    ignored = ("decide", "again", "decided_anew", "--store-url", url, "--ignore")
    assert factfold(*ignored, "order.placed.amount").exit_code == 0
    unknown = factfold(*ignored, "order.placed.amuont")
    assert (unknown.exit_code, unknown.exception.remedy) == (1, "write order.placed.amount")
    assert sys.modules.pop("decided_anew")
