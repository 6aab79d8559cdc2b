"""An aggregate of a person."""

from __future__ import annotations

from typing import Annotated

from eventstore import Aggregate, Personal, command, event


class Customer(Aggregate):
    name: str = ""

    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]

    @command
    def register(self, name: str) -> None:
        self.emit(self.Registered(name=name))

    def on_registered(self, e: Registered) -> None:
        self.name = e.name
