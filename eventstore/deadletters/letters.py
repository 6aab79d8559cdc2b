"""The port of the homes of dead letters: what is open there, what a letter holds, what you do with it.

    with group_letters(settings, "payment.suspicious", group="fraud") as letters:
        for cause in by_cause(letters.open()):
            print(cause.error, cause.count)
        letters.replay(to="group")

A letter is open until an action settles it. The action is written down with the letter's own change, in one
transaction of its home: no letter is lost, and none is settled twice.
"""

from __future__ import annotations

import getpass
import socket
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from eventstore.closing import Closing
from eventstore.errors import FactfoldError, LetterMissing, ReplayRefused

L = TypeVar("L")
Target = Literal["group", "topic", "branch"]
OnProgress = Callable[[int, int], None]
"""Called with the letters that are done, or the records that are read, and with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One record that was given up: `origin` is its place, `why_not` the reason why it cannot be replayed.

    `attempts` counts the calls of the handler, 0 for a record that could not be read.
    """

    id: str
    origin: str
    error: str
    message: str
    attempts: int = 0
    time: datetime | None = None
    event_id: str | None = None
    type: str | None = None
    stream: str | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A letter with what its record holds, personal values masked.

    `payload` is None where there is none to show, and `problem` says why. `headers` are the record's own.
    """

    letter: Letter
    payload: Mapping[str, Any] | None
    problem: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What was done with a letter, with name and time.

    `result` is `sent` or `discarded`. A letter of a store is `waiting` until its subscriber has `handled` it, found it
    `deleted`, or given it up again (`dead`), or until its replay is `withdrawn`.
    """

    letter: str
    origin: str
    action: Literal["replay", "discard"]
    by: str
    time: datetime
    result: str
    event_id: str | None = None
    to: str | None = None
    edited: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """How many letters were settled, and those that stay open, each with the reason."""

    count: int = 0
    left: Mapping[str, str] = field(default_factory=dict)


class Letters(Closing):
    """The dead letters of one group of one topic, or of one topic's branches. Use it in `with`.

    Examples:
        >>> with group_letters(settings, "payment.suspicious", group="fraud") as letters:
        ...     letters.replay(to="group")
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """The name of the letters' topic or table in messages."""

    @abstractmethod
    def open(self, *, on_progress: OnProgress = lambda done, total: None) -> Iterator[Letter]:
        """Yield the letters that no action has settled, the oldest first."""

    @abstractmethod
    def show(self, letter_id: str) -> Contents:
        """Return the contents of a letter, personal values masked. Raises LetterMissing for an unknown id."""

    @abstractmethod
    def replay(
        self,
        ids: Collection[str] | None = None,
        *,
        to: Target | None = None,
        edit: Mapping[str, Any] | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Send letters back.

        Args:
            ids: The letters, by default all that are open.
            to: Where they go: to the group alone, the topic or the branch.
            edit: Another payload for a single letter.
            by: The person, for the record of the action. By default the user and host.
            on_progress: Is called with the number of letters that are done and of all.

        Raises:
            LetterMissing: No open letter has one of the ids.
            ReplayRefused: A letter cannot be sent there.
            InvalidEventData: The edited payload does not fit the event.
        """

    @abstractmethod
    def discard(
        self,
        ids: Collection[str] | None = None,
        *,
        why: str | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Settle letters without handling them.

        Args:
            ids: The letters, by default all that are open.
            why: The reason, for the record of the action.
            by: The person, by default the user and host.
            on_progress: Is called with the number of letters that are done and of all.

        Raises:
            LetterMissing: No open letter has one of the ids.
        """

    @abstractmethod
    def actions(self) -> Iterator[Action]:
        """Yield what was done with letters, the oldest first."""


def operator() -> str:
    """Return the operator's user and host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def require_open(asked: Collection[str], open_ids: Collection[str], place: str) -> None:
    """Raise LetterMissing for the first id that no open letter has."""
    for letter_id in asked:
        if letter_id not in open_ids:
            raise LetterMissing(
                f"there is no open dead letter {letter_id!r}",
                remedy="list the open ones (factfold dlq list), or what was done with others (factfold dlq actions)",
                place=place,
            )


def chosen(letters: Mapping[str, L], ids: Collection[str] | None, place: str) -> list[L]:
    """Return the open letters of some ids in the order of `letters`, all without `ids`. Raises LetterMissing."""
    require_open(ids or (), letters, place)
    selected = letters.keys() if ids is None else set(ids)
    return [one for letter_id, one in letters.items() if letter_id in selected]


def require_single(asked: Collection[str] | None, place: str) -> str:
    """Return the only id that is asked for, as an edit needs it. Raises ReplayRefused."""
    if asked is None or len(asked) != 1:
        raise ReplayRefused(
            f"an edit is of one letter, and {'all' if asked is None else len(asked)} are asked for",
            remedy="name the one letter that the edited payload belongs to",
            place=place,
        )
    return next(iter(asked))


def reason(problem: FactfoldError) -> str:
    """Return why a letter stays open, in one line."""
    return f"{type(problem).__name__}: {problem.message}"
