"""Dead letters, whatever their home: choose open letters, act on them, and note each action.

    with letters(settings, "payment.suspicious", group="fraud") as opened:
        for cause in by_cause(opened.open()):
            print(cause.error, cause.count)
        opened.replay(to="group")

A letter is open until an action settles it. The action is written down with the letter's own change, in one
transaction of its home: no letter is lost, and none is settled twice. A home fetches letters and settles them.

Letters grouped by what gave them up: the error and its message without what differs from record to record.
"""

from __future__ import annotations

import getpass
import re
import socket
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from eventstore.closing import Closing
from eventstore.errors import FactfoldError, NotFound, ReplayRefused

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """An action that an operator asks for, before it is done with each chosen letter. `result` follows from the home.

    A replay says in `to` where it sends letters, a discard has none.
    """

    action: Literal["replay", "discard"]
    result: str
    by: str
    to: Target | None = None
    edit: Mapping[str, Any] | None = None
    why: str | None = None

    def note(self, letter: Letter) -> Action:
        """Return the record of what is done with a letter now."""
        return Action(
            letter=letter.id, origin=letter.origin, event_id=letter.event_id, action=self.action, by=self.by,
            time=datetime.now(UTC), result=self.result, to=self.to, edited=self.edit is not None, why=self.why,
        )  # fmt: skip


class Letters(Closing):
    """The dead letters of one group of one topic, or of one topic's branches. Use it in `with`.

    Examples:
        >>> with letters(settings, "payment.suspicious", group="fraud") as opened:
        ...     opened.replay(to="group")
    """

    _replayed = "sent"  # the result of a replay

    @property
    @abstractmethod
    def place(self) -> str:
        """The name of the letters' topic or table in messages."""

    def open(self, *, on_progress: OnProgress = lambda done, total: None) -> Iterator[Letter]:
        """Yield the letters that no action has settled, the oldest first."""
        return iter(self._fetch(on_progress).values())

    def show(self, letter_id: str) -> Contents:
        """Return the contents of a letter, personal values masked. Raises NotFound for an unknown id."""
        (letter,) = self._chosen([letter_id])
        return self._contents(letter)

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
            NotFound: No open letter has one of the ids.
            ReplayRefused: A letter cannot be sent there.
            InvalidEventData: The edited payload does not fit the event.
        """
        target = self._target(to)
        if edit is not None:
            self._require_single(ids)
        deed = Deed(action="replay", result=self._replayed, by=by or operator(), to=target, edit=edit)
        return self._settle(ids, deed, on_progress)

    def discard(
        self,
        ids: Collection[str] | None = None,
        *,
        why: str | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Settle letters without handling them. Their records stay where they are.

        A replay that waits for its subscriber is withdrawn, if its letter is named.

        Args:
            ids: The letters, by default all that are open.
            why: The reason, for the record of the action.
            by: The person, by default the user and host.
            on_progress: Is called with the number of letters that are done and of all.

        Raises:
            NotFound: No open letter has one of the ids.
        """
        deed = Deed(action="discard", result="discarded", by=by or operator(), why=why)
        return self._settle(ids, deed, on_progress)

    @abstractmethod
    def actions(self) -> Iterator[Action]:
        """Yield what was done with letters, the oldest first."""

    @abstractmethod
    def _fetch(self, on_progress: OnProgress = lambda done, total: None) -> Mapping[str, Letter]:
        """Return the open letters by their ids, the oldest first."""

    @abstractmethod
    def _contents(self, letter: Letter) -> Contents:
        """Return what the record of an open letter holds."""

    @abstractmethod
    def _target(self, to: Target | None) -> Target:
        """Return where a replay sends letters. Raises ReplayRefused for a place that this home does not reach."""

    @abstractmethod
    def _settle(self, ids: Collection[str] | None, deed: Deed, on_progress: OnProgress) -> Settled:
        """Do a deed with the letters that `_chosen` returns, and note it, in transactions of the home."""

    def _chosen(self, ids: Collection[str] | None) -> list[Letter]:
        """Return the open letters of some ids, the oldest first, all without `ids`. Raises NotFound."""
        letters = self._fetch()
        require_open(ids or (), letters, self.place)
        wanted = letters.keys() if ids is None else set(ids)
        return [letter for letter_id, letter in letters.items() if letter_id in wanted]

    def _require_single(self, ids: Collection[str] | None) -> None:
        """Raise ReplayRefused unless an edit has the one letter that it belongs to."""
        if ids is None or len(ids) != 1:
            raise ReplayRefused(
                f"an edit is of one letter, and {'all' if ids is None else len(ids)} are asked for",
                remedy="name the one letter that the edited payload belongs to",
                place=self.place,
            )


def operator() -> str:
    """Return the operator's user and host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def require_open(asked: Collection[str], open_ids: Collection[str], place: str) -> None:
    """Raise NotFound for the first id that no open letter has."""
    for letter_id in asked:
        if letter_id not in open_ids:
            raise NotFound(
                f"there is no open dead letter {letter_id!r}",
                remedy="list the open ones (factfold dlq list), or what was done with others (factfold dlq actions)",
                place=place,
                code="letter-missing",
            )


def reason(problem: FactfoldError) -> str:
    """Return why a letter stays open, in one line."""
    return f"{type(problem).__name__}: {problem.message}"


# Ids, quoted values and numbers: `no room for 2` and `no room for 37` are one cause.
_DIFFERS: Final = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|'[^']*'|\"[^\"]*\"|(?<![A-Za-z0-9])[-+]?\d[\d.,:]*"
)
PLACEHOLDER: Final = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Letters of one cause: `pattern` is their message, `…` for what differs, `example` the newest message."""

    error: str
    pattern: str
    example: str
    count: int
    attempts: int
    first: datetime | None
    last: datetime | None
    letters: tuple[str, ...]


def pattern_of(message: str) -> str:
    """Return the first line of a message, with `…` for ids, quoted values and numbers."""
    return _DIFFERS.sub(PLACEHOLDER, message.partition("\n")[0]).strip()


def by_cause(letters: Iterable[Letter]) -> list[Cause]:
    """Group letters by error and message pattern, the most frequent cause first.

    Examples:
        >>> for cause in by_cause(letters.open()):
        ...     print(cause.count, cause.error, cause.pattern)
        2 ValueError no room for …
    """
    groups: dict[tuple[str, str], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.error, pattern_of(letter.message)), []).append(letter)
    causes = [_cause(error, pattern, grouped) for (error, pattern), grouped in groups.items()]
    return sorted(causes, key=lambda cause: (-cause.count, cause.error, cause.pattern))


def _cause(error: str, pattern: str, letters: list[Letter]) -> Cause:
    times = sorted(letter.time for letter in letters if letter.time is not None)
    return Cause(
        error=error,
        pattern=pattern,
        example=letters[-1].message.partition("\n")[0],
        count=len(letters),
        attempts=sum(letter.attempts for letter in letters),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        letters=tuple(letter.id for letter in letters),
    )
