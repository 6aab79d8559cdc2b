"""What can go wrong with the local stack.

StackError
├── ArtifactError   a jar, plugin or wheel is missing, unreachable or not what its checksum says
├── ServerFailed    a server ended or did not answer before its deadline; `log_tail` has its last lines
├── StackBusy       another process is starting or stopping the same stack
└── StackNotUp      the stack, or one server of it, is not running
"""

from __future__ import annotations

from eventstore.errors import FactfoldError


class StackError(FactfoldError):
    """The local stack did not do what was asked."""


class ArtifactError(StackError):
    """A file of the stack is missing, unreachable or not what its checksum says."""


class ServerFailed(StackError):
    """A server ended or did not answer in time; the tail of its log comes along."""

    def __init__(self, message: str, *, remedy: str, place: str | None = None, log_tail: str = "") -> None:
        super().__init__(message, remedy=remedy, place=place)
        self.log_tail = log_tail
        if log_tail:
            self.add_note(log_tail)


class StackBusy(StackError):
    """Another process is starting or stopping the same stack."""


class StackNotUp(StackError):
    """The stack, or the server asked for, is not running."""
