"""What a process records of each step: one event, which is also all that its state is made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

# What an instance is at.
UNSTARTED: Final = "unstarted"
RUNNING: Final = "running"
COMPENSATING: Final = "compensating"
COMPENSATED: Final = "compensated"
COMPENSATION_FAILED: Final = "compensation_failed"
DONE: Final = "done"
CANCELLED: Final = "cancelled"

ENDED: Final = frozenset({COMPENSATED, DONE, CANCELLED})

# What a step answers.
EVENT: Final = "event"
REPLY: Final = "reply"
TIMEOUT: Final = "timeout"
OPERATOR: Final = "operator"

# What became of a command.
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
EXPIRED: Final = "expired"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The input of a step; `data` is JSON (eventstore.fields.plain_json), personal fields show their placeholders."""

    kind: str
    name: str
    id: UUID
    place: str
    time: datetime
    schema_version: int = 1
    data: str = "{}"
    correlation_id: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, kw_only=True)
class SentCommand:
    """A command that a step sent, due at once unless `due` says later; `answered` says that its reply is a step too."""

    id: UUID
    command: str
    to: str
    arguments: str
    due: datetime
    expires: datetime | None = None
    answered: bool = False


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """A timer that a step set; it takes the place of an earlier one of its name."""

    id: UUID
    name: str
    due: datetime


@dataclass(frozen=True, kw_only=True)
class Undoable:
    """A command with its compensation, and what became of it.

    `outcome` is empty until the reply, then accepted, refused or expired; `withdrawn` where it was taken back before it
    was sent; `undoing`, `undone` and `undo_failed` are about its compensation.
    """

    id: UUID
    command: str
    undo: str
    undo_to: str
    undo_arguments: str
    undo_id: UUID | None = None
    outcome: str = ""
