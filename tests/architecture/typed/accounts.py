"""A user's code in the function style, with mistakes; see orders.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import reveal_type

from eventstore import Dispatcher, MemoryEventStore, decider, event


@event
class Opened:
    owner: str


@event(name="account.shut")
class Closed:
    why: str


@dataclass(frozen=True)
class Account:
    owner: str = ""


def evolve(state: Account, event: Opened | Closed) -> Account:
    match event:
        case Opened():
            return replace(state, owner=event.owner)
        case Closed():
            return replace(state, owner=event.owner)  # error: attr-defined


def evolve_text(state: str, event: Opened) -> str:
    return state


def open_account(state: Account, owner: str) -> Opened:
    return Opened(owner=owner)


account = decider("account", initial_state=Account, evolve=evolve, decide=[open_account])
accounts = Dispatcher(MemoryEventStore())

reveal_type(Opened(owner="Ada").owner)  # note: "str"
reveal_type(Closed(why="moved").why)  # note: "str"
reveal_type(accounts.load(account, "1").value)  # note: accounts.Account"

Opened(owner=3)  # error: arg-type
Closed(because="moved")  # error: call-arg
accounts.send("1", open_account, 3)  # error: arg-type
accounts.send("1", open_account, name="Ada")  # error: call-arg
balance = accounts.load(account, "1").value.balance  # error: attr-defined
decider("text", initial_state=Account, evolve=evolve_text)  # error: misc
