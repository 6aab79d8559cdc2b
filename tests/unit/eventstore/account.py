"""An aggregate of functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from eventstore import decider, event
from eventstore.errors import Refused


@event
class Opened:
    owner: str


@event
class Deposited:
    amount: Decimal


@event
class Closed:
    pass


@dataclass(frozen=True)
class Balance:
    owner: str = ""
    balance: Decimal = Decimal(0)


def evolve(state: Balance, event: Opened | Deposited | Closed) -> Balance:
    match event:
        case Opened():
            return replace(state, owner=event.owner)
        case Deposited():
            return replace(state, balance=state.balance + event.amount)
        case Closed():
            return state


def open_account(state: Balance, owner: str) -> Opened:
    if state.owner:
        raise Refused(f"it is {state.owner}'s")
    return Opened(owner=owner)


def deposit(state: Balance, *amounts: Decimal) -> Iterator[Deposited]:
    for amount in amounts:
        if amount <= 0:
            raise Refused("nothing is no deposit")
        yield Deposited(amount=amount)


def look(state: Balance) -> None:
    """Decide that nothing has to happen."""


account = decider("account", initial_state=Balance, evolve=evolve, decide=[open_account, deposit, look])
