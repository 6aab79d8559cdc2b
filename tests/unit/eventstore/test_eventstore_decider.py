"""An aggregate of functions is an aggregate as any other."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from pyspark import cloudpickle

from eventstore import Accepted, Dispatcher, MemoryEventStore, Refusal, decider, event
from eventstore.errors import DeclarationError, InvalidEventData, UnknownEventType
from eventstore.event_types import event_type_of
from eventstore.snapshots import Snapshots
from eventstore.testing.scenario import given
from tests.rows import each_row
from tests.unit.eventstore.account import Balance, Deposited, Opened, account, deposit, evolve, look, open_account


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


def test_a_foreign_event_is_refused() -> None:
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
