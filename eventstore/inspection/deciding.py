"""Recorded commands, decided again by the present code on the states of their time. Nothing is written.

A dispatcher with ``keep_commands=True`` stores a command with the first event that it led to. The following events of
its stream with the same causation id are those of the same command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Final

from eventstore.aggregates.aggregate import Aggregate
from eventstore.aggregates.command_schemas import arguments_of, given_arguments
from eventstore.delivery.source import MASK, masked_text
from eventstore.errors import FactfoldError, NotFound, Refused
from eventstore.event_types import EventType, type_of_object
from eventstore.fields.conversions import aware_utc
from eventstore.identifiers import StreamName
from eventstore.inspection.refolding import Refolding
from eventstore.personal.sealing import Erased
from eventstore.snapshots import has_personal_events
from eventstore.store import RecordedCommand, RecordedEvent

if TYPE_CHECKING:
    from eventstore import SqlEventStore

_PAGE: Final = 500
_SHOWN: Final = 1000


class Outcome(StrEnum):
    """What became of a recorded command: only those from DIFFERS to UNREADABLE are findings."""

    EQUAL = "equal"
    DIFFERS = "differs"
    REFUSED = "refused"
    FAILS = "fails"
    UNREADABLE = "unreadable"
    ERASED = "erased"


@dataclass(frozen=True, slots=True)
class Difference:
    """What is emitted otherwise: a field of an event, or without a field the type of one, None for no event."""

    event: str
    field: str | None
    recorded: Any
    decided: Any


@dataclass(frozen=True, slots=True)
class Decision:
    """A recorded command that the code decides otherwise, or no longer decides.

    Attributes:
        stream: The stream.
        version: The version of the first event that the command led to.
        command: The command, `category.method`.
        outcome: DIFFERS, REFUSED, FAILS or UNREADABLE.
        reason: Why it is refused, fails, or cannot be read. Words of personal values are masked.
        differences: What is emitted otherwise. Personal values are masked.
    """

    stream: str
    version: int
    command: str
    outcome: Outcome
    reason: str = ""
    differences: tuple[Difference, ...] = ()


@dataclass(slots=True)
class DecidedAgain:
    """What became of the recorded commands of a category.

    Attributes:
        counts: How many commands there are of each outcome.
        not_recorded: How many events have no recorded command.
        findings: The first commands that are not decided as they were.
    """

    counts: Counter[Outcome] = field(default_factory=Counter)
    not_recorded: int = 0
    findings: list[Decision] = field(default_factory=list)


def decide_again(
    store: SqlEventStore,
    kind: type[Aggregate],
    *,
    since: datetime | None = None,
    ignore: Collection[str] = (),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> DecidedAgain:
    """Decide the recorded commands of an aggregate again, each on the state before its events. Nothing is written.

    Refused commands are not recorded. A command with an argument of an erased person is not decided.

    Args:
        store: The store, opened with keys if the aggregate or its commands have personal values.
        kind: The aggregate, by whose code the commands are decided.
        since: Decide those that were recorded from this time on.
        ignore: Fields not to compare, such as `order.placed.at`: those that a clock or chance gives.
        on_progress: Called with the number of events read so far, and of all.

    Raises:
        KeysMissing: A personal value is sealed, and the store was opened without keys.
        InvalidEventData: The time has no time zone.

    Examples:
        >>> again = decide_again(store, Order)
        >>> again.findings, again.counts[Outcome.EQUAL]
        ([], 100)
    """
    again = _Again(kind, None if since is None else aware_utc(since), frozenset(ignore))
    events = store.read_all(category=kind.category)
    read, total = 0, store.backlog(None, category=kind.category)[0]
    while page := list(islice(events, _PAGE)):
        commands = store.commands_of([event.id for event in page if again.covers(event)])
        for event in page:
            again.take(event, commands.get(event.id))
        on_progress(read := read + len(page), total)
    return again.ended()


_Emitted = tuple[EventType, Mapping[str, Any]]


@dataclass(slots=True)
class _Open:
    """A command whose events are being read, and what it leads to by the code of now."""

    command: RecordedCommand
    events: list[RecordedEvent]
    outcome: Outcome = Outcome.EQUAL
    reason: str = ""
    emitted: list[_Emitted] = field(default_factory=list)


class _Again:
    """The commands of one aggregate, event by event."""

    def __init__(self, kind: type[Aggregate], since: datetime | None, ignore: frozenset[str]) -> None:
        self._kind, self._since, self._ignore = kind, since, ignore
        self._folding = Refolding(kind, {}, opened=True)
        self._open: dict[str, _Open] = {}
        self._result = DecidedAgain()

    def covers(self, event: RecordedEvent) -> bool:
        """Say whether an event is in the time that is asked for."""
        return self._since is None or event.time >= self._since

    def take(self, event: RecordedEvent, command: RecordedCommand | None) -> None:
        """Decide a command on the state so far, or add an event to its command. The state evolves by the event."""
        going = self._open.get(event.stream)
        cause = event.metadata.causation_id
        if command is None and going is not None and going.events[0].metadata.causation_id == cause:
            going.events.append(event)
        else:
            self._close(event.stream)
            if command is not None:
                self._open[event.stream] = self._decided(command, event)
            elif self.covers(event):
                self._result.not_recorded += 1
        self._folding.take(event)

    def ended(self) -> DecidedAgain:
        """Compare the last command of each stream, and return the result."""
        for stream in list(self._open):
            self._close(stream)
        return self._result

    def _decided(self, command: RecordedCommand, event: RecordedEvent) -> _Open:
        going = _Open(command, [event])
        if any(type(value) is Erased for value in command.arguments.values()):
            going.outcome = Outcome.ERASED
            return going
        try:
            function, arguments = self._read(command, event)
        except FactfoldError as error:
            going.outcome, going.reason = Outcome.UNREADABLE, f"the code cannot read the command: {error.message}"
            return going
        state = deepcopy(self._folding.states.get(event.stream))
        if state is None:
            state = self._kind.initial_state(StreamName.parse(event.stream).id)
        values = [command.arguments[one] for one in command.subjects]
        if has_personal_events(self._kind):
            values += state.state().values()
        try:
            emitted = self._kind.decide(state, function, **arguments)
            going.emitted = [(one, one.to_plain(made)) for made in emitted for one in [type_of_object(made)]]
        except Refused as refused:
            going.outcome, going.reason = Outcome.REFUSED, masked_text(refused.reason, values)
        except Exception as error:  # whatever the code raises
            cause = error.message if isinstance(error, FactfoldError) else str(error)
            going.outcome, going.reason = Outcome.FAILS, masked_text(f"{type(error).__name__}: {cause}", values)
        return going

    def _read(self, command: RecordedCommand, event: RecordedEvent) -> tuple[Callable[..., object], dict[str, Any]]:
        """The command of now and its arguments; an error for what the code has no more."""
        function = self._kind.commands.get(command.name.rpartition(".")[2])
        if function is None or event.stream in self._folding.broken:
            missing = f"there is no command {command.name}" if function is None else "events before it do not fold"
            raise NotFound(missing, remedy="declare it again, and see `factfold preflight`")
        return function, given_arguments(function, (), arguments_of(function, command.arguments))

    def _close(self, stream: str) -> None:
        if (going := self._open.pop(stream, None)) is None:
            return
        differences: tuple[Difference, ...] = ()
        if going.outcome is Outcome.EQUAL:
            try:
                differences = tuple(self._differences(going))
                going.outcome = Outcome.DIFFERS if differences else Outcome.EQUAL
            except FactfoldError as error:
                going.outcome, going.reason = Outcome.UNREADABLE, f"the code cannot read its events: {error.message}"
        self._result.counts[going.outcome] += 1
        if going.outcome not in (Outcome.EQUAL, Outcome.ERASED) and len(self._result.findings) < _SHOWN:
            place = (stream, going.events[0].version, going.command.name)
            self._result.findings.append(Decision(*place, going.outcome, going.reason, differences))

    def _differences(self, going: _Open) -> Iterator[Difference]:
        stored = ((event, self._kind.stored_type(event.type)) for event in going.events)
        upcast = ((one.data, now) for one, kind in stored for now in kind.upcast(one.schema_version, one.data))
        recorded = [(kind, {**plain, **kind.completed(plain)}, written) for written, (kind, plain) in upcast]
        for old, new in zip_longest(recorded, going.emitted):
            types = old and old[0].name, new and new[0].name
            if old is None or new is None or types[0] != types[1]:
                yield Difference(types[0] or types[1] or "", None, *types)
                continue
            kind, before, written = old
            personal = kind.registered.personal.keys() | getattr(written, "personal", {}).keys()
            for name in [*before, *(one for one in new[1] if one not in before)]:
                erased = name in personal and bool(getattr(written, "erased", ()))
                given = name in before and name in new[1] and before[name] == new[1][name]
                if not (erased or f"{kind.name}.{name}" in self._ignore or given):
                    values = (MASK, MASK) if name in personal else (before.get(name), new[1].get(name))
                    yield Difference(kind.name, name, *values)
