"""An aggregate that counts, and refuses to count too far; and middleware that notes its commands."""

from __future__ import annotations

from eventstore import Aggregate, command, event


class Counter(Aggregate):
    count: int = 0

    @event
    class Counted:
        by: int

    @command
    def add(self, by: int, *, at_most: int = 1000) -> None:
        if self.count + by > at_most:
            self.refuse(f"{self.count} and {by} are more than {at_most}")
        if by:
            self.emit(self.Counted(by=by))

    @command
    def add_each(self, *steps: int) -> None:
        for by in steps:
            self.emit(self.Counted(by=by))

    def on_counted(self, e: Counted) -> None:
        self.count += e.by


def noting(name, into):
    """Middleware that notes a command before it is sent, and what came of it."""

    def middleware(command, send):
        into.append(f"{name} before {command.name}")
        result = send(command)
        into.append(f"{name} after {type(result).__name__}")
        return result

    return middleware
