"""One step: an input and the state in, the state and what is decided out. No database, no clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID, uuid5

from eventstore.aggregates.aggregate import command_name
from eventstore.fields.conversions import later_or_last
from eventstore.fields.plain_json import load_plain
from eventstore.identifiers import StreamName
from eventstore.processes.errors import ProcessAlreadyStarted, ProcessError, ProcessStuck
from eventstore.processes.process import (
    LATE,
    REACTS,
    REPLIES,
    STARTS,
    TIMES_OUT,
    Arrived,
    Decided,
    Process,
    Reaction,
    Reply,
    Sending,
)
from eventstore.processes.records import (
    ACCEPTED,
    CANCELLED,
    COMPENSATED,
    COMPENSATING,
    COMPENSATION_FAILED,
    DONE,
    EVENT,
    OPERATOR,
    REPLY,
    RUNNING,
    TIMEOUT,
    UNSTARTED,
    Cause,
    SentCommand,
    SetTimer,
    Undoable,
)
from eventstore.store import Cause as Causation
from eventstore.store import Metadata

_NAMESPACE: Final = UUID("6b1f2f0c-9d63-4a54-8f0e-7b8f1c1d2f11")


@dataclass(frozen=True, slots=True)
class Input:
    """The input of a step, with the events that it is now. One stored event may be several current ones."""

    cause: Cause
    arrived: Sequence[Arrived] = ()
    decided_by: str | None = None

    @property
    def metadata(self) -> Metadata:
        """The metadata of the step: same conversation, this input as the cause.

        `decided_by` is the id of the step that sent the command which is answered, or set the timer which is due.
        """
        cause, caused = self.cause, Causation(str(self.cause.id))
        if cause.kind in (REPLY, TIMEOUT):  # a refused command and a timer have no event that names them
            caused = Causation(caused.id, cause.name if cause.kind == REPLY else f"timer.{cause.name}", self.decided_by)
        return Metadata(
            correlation_id=cause.correlation_id or caused.id, causation_id=str(caused), traceparent=cause.traceparent
        )


def step(process: Process, given: Input, *, now: datetime) -> Process.Stepped | None:
    """Let an instance take an input: its state changes, what it decided is returned, None where it is nothing to it.

    The errors of its handlers; ProcessAlreadyStarted, ProcessStuck, InvalidEventData. After an error
    the instance is to be thrown away.
    """
    undoing = given.cause.kind == OPERATOR or process.standing.status == COMPENSATING  # which a circle is ended by
    if process.version + 1 >= process.max_steps and not undoing:
        raise ProcessStuck(
            f"{process.stream} took {process.max_steps} steps",
            remedy="cancel it if two processes answer each other. Otherwise give the class a larger max_steps=",
            place=str(process.stream),
            code="too-many-steps",
        )
    return _Step(process, given, now).taken()


def replayed(
    kind: type[Process], former: Process, inputs: Sequence[tuple[Cause, datetime]], moving: Cause, *, note: str
) -> tuple[Process, Process.Stepped]:
    """Return an instance as another version of its code makes it of the same inputs, and the step that says so.

    Each input comes with the time of its step, from which timers count. What that code would have sent is dropped.
    Compensations are those of the commands that were sent. ProcessError where the instance would have another status;
    the errors of handlers.
    """
    process, timers = kind(former.id), dict[str, SetTimer]()
    for cause, time in inputs:
        stepped = _again(process, cause, time)
        for name in [*([] if stepped is None else stepped.cancelled), *[cause.name] * (cause.kind == TIMEOUT)]:
            timers.pop(name, None)
        timers.update({} if stepped is None else {timer.name: timer for timer in stepped.timers})
    if process.standing.status != former.standing.status:
        raise ProcessError(
            f"by version {kind.code_version} of its code {process.stream} would be {process.standing.status} by now",
            remedy="let it end by the version it began with",
            place=str(process.stream),
        )
    # What the replay recorded is in no step: the next one records all compensations.
    process.standing.undoables, process.standing.recorded = former.standing.undoables, []
    process.version = former.version + 1
    return process, _Step(process, Input(moving), moving.time, timers, note).recorded()


def _again(process: Process, cause: Cause, time: datetime) -> Process.Stepped | None:
    if cause.kind == OPERATOR and cause.name != "retry":
        return None
    arrived = _recorded(process, cause) if cause.kind == EVENT else ()
    return step(process, Input(cause, arrived), now=time)


def _recorded(process: Process, cause: Cause) -> Sequence[Arrived]:
    """The events of an input that was recorded."""
    data = load_plain(cause.data)
    stream_id = StreamName.parse(cause.place.rpartition("@")[0]).id
    return process.reactions.addressed(cause.name, cause.schema_version, data, stream_id).get(process.id, [])


class _Step:
    """A step that is being taken."""

    def __init__(
        self, process: Process, given: Input, now: datetime, timers: dict[str, SetTimer] | None = None, note: str = ""
    ) -> None:
        self._process, self._input, self._now = process, given, now
        self._at = process.standing
        self._sent: list[SentCommand] = []
        self._timers = timers or {}
        self._cancelled: list[str] = []
        self._withdrawn = False
        self._note = note
        self._ids = 0

    def taken(self) -> Process.Stepped | None:
        ways = {EVENT: self._event, REPLY: self._reply, TIMEOUT: self._timeout, OPERATOR: self._operator}
        if not ways[self._input.cause.kind](self._input):
            return None
        stepped = self.recorded()
        self._process.version += 1
        return stepped

    def recorded(self) -> Process.Stepped:
        """Return the event of the step; InvalidEventData for a state that has no place in it."""
        undoables = self._at.to_record()
        return self._process.Stepped(
            code=self._process.code_version,
            cause=self._input.cause,
            status=self._at.status,
            problem=self._at.problem,
            state=self._process.state_json(),
            sent=self._sent,
            timers=list(self._timers.values()),
            cancelled=self._cancelled,
            withdrawn=self._withdrawn,
            undoables=undoables,
            early=self._at.early,
            note=self._note,
            rest=self._at.rest,
        )

    def _event(self, given: Input) -> bool:
        if self._at.status != UNSTARTED:
            self._require_no_start(given)  # before a handler of another half changes the instance
        early: list[Arrived] = []  # of a stored event that becomes several current events
        for arrived in given.arrived:
            if self._at.status != UNSTARTED:
                self._after_start(arrived)
            elif (start := self._reaction(arrived, STARTS)) is not None:
                self._start(start, arrived, early)
                early = []
            else:
                early.append(arrived)
        if early and given.cause.id not in {cause.id for cause in self._at.early}:
            self._at.early = [*self._at.early, given.cause]
        return True

    def _start(self, start: Reaction, arrived: Arrived, early: Sequence[Arrived]) -> None:
        """Begin, and then handle what came before: in inputs of their own, and in this one."""
        self._at.status = RUNNING
        self._call(start, arrived.event)
        causes, self._at.early = self._at.early, []
        for cause in causes:
            for one in _recorded(self._process, cause):
                self._after_start(one, cause)
        for one in early:
            self._after_start(one)

    def _after_start(self, arrived: Arrived, cause: Cause | None = None) -> None:
        if arrived.ways == {STARTS}:
            raise self._second_start()
        reaction = self._reaction(arrived, REACTS if self._at.status == RUNNING else LATE)
        if reaction is not None:
            self._call(reaction, arrived.event, cause)
        else:
            name = type(arrived.event).__name__
            self._note = f"{name} came when the process was {self._at.status}, and nothing handles that"

    def _reaction(self, arrived: Arrived, way: str) -> Reaction | None:
        return self._process.reactions.get(way, type(arrived.event)) if way in arrived.ways else None

    def _timeout(self, given: Input) -> bool:
        if self._at.status != RUNNING:
            return False
        reaction = self._process.reactions.get(TIMES_OUT, given.cause.name)
        if reaction is None:
            raise ProcessStuck(
                f"{type(self._process).__qualname__} has no handler for the timer {given.cause.name!r} that is due",
                remedy=f'mark a method @times_out("{given.cause.name}"), or name it in timers= of process_of. '
                "Then retry",
                place=str(self._process.stream),
                code="timer-undecodable",
            )
        self._call(reaction, None)
        return True

    def _reply(self, given: Input) -> bool:
        reply = Reply(given.cause.name, **load_plain(given.cause.data))
        for number, undoable in enumerate(self._at.undoables):
            if undoable.undo_id == given.cause.id:
                self._undone(number, undoable, reply)
                return True
            if undoable.id == given.cause.id:
                self._settle(number, undoable, reply)
                break
        reaction = self._process.reactions.get(REPLIES, reply.command)
        if reaction is not None:
            self._call(reaction, reply)
        elif not reply.accepted:
            self._at.problem = f"{reply.command} was {reply.outcome}: {reply.reason}"
        return True

    def _settle(self, number: int, undoable: Undoable, reply: Reply) -> None:
        """Note a reply; what is accepted last is undone first."""
        del self._at.undoables[number]
        self._at.undoables.append(replace(undoable, outcome=reply.outcome))

    def _undone(self, number: int, undoable: Undoable, reply: Reply) -> None:
        outcome = "undone" if reply.accepted else "undo_failed"
        self._at.undoables[number] = replace(undoable, outcome=outcome)
        if reply.accepted:
            self._undo_next()
        else:
            problem = f"{reply.command}, which undoes {undoable.command}, was {reply.outcome}: {reply.reason}"
            self._at.status, self._at.problem = COMPENSATION_FAILED, problem

    def _operator(self, given: Input) -> bool:
        wish = given.cause.name
        if wish == "retry":
            self._at.problem = ""
            if self._at.status == COMPENSATION_FAILED:
                for number, one in enumerate(self._at.undoables):
                    if one.outcome == "undo_failed":
                        self._at.undoables[number] = replace(one, outcome=ACCEPTED, undo_id=None)
                self._at.status = COMPENSATING
                self._undo_next()
        elif wish == "compensate":
            if self._at.status != COMPENSATING:  # whose compensation that is on its way would be withdrawn
                self._compensate("cancelled by hand")
        elif wish == "cancel":
            self._withdraw()
            self._at.status = CANCELLED
        else:
            raise ProcessError(f"{wish!r} is no wish of an operator", remedy="use retry, compensate or cancel")
        return True

    def _call(self, reaction: Reaction, given: object, cause: Cause | None = None) -> None:
        """Call a handler and record what it decides; `cause` is that of an event which came before the start."""
        decided = self._process.__dict__["_decided"] = Decided(cause or self._input.cause, self._now)
        try:
            reaction.call(self._process, given)
        finally:
            self._process.__dict__["_decided"] = None
        undoing = decided.compensate is not None and self._at.status in (RUNNING, DONE)
        if undoing:
            self._withdraw()
        self._record(decided, undoing=undoing)
        if undoing:
            self._compensate(str(decided.compensate))
        if decided.done and self._at.status == RUNNING:
            self._end()

    def _record(self, decided: Decided, *, undoing: bool) -> None:
        self._require_use(decided, undoing)
        for name in decided.cancelled:
            self._timers.pop(name, None)
            self._cancelled.append(name)
        for name, due in decided.timers.items():
            self._timers[name] = SetTimer(id=self._new_id(), name=name, due=due)
        for sending in decided.sends:
            name = command_name(sending.command)
            sent = self._send(sending, answered=self._process.reactions.get(REPLIES, name) is not None)
            if sending.undo is not None:
                undo = sending.undo
                undoable = Undoable(
                    id=sent.id,
                    command=sent.command,
                    undo=command_name(undo.command),
                    undo_to=undo.to,
                    undo_arguments=undo.arguments,
                )
                self._at.undoables.append(undoable)

    def _require_use(self, decided: Decided, undoing: bool) -> None:
        """Refuse what would never be done; ProcessError."""
        status = "compensating" if undoing else self._at.status
        if status == RUNNING:
            return
        if decided.timers:
            raise self._useless(f"sets the timer {min(decided.timers)!r}", status, "set timers while it runs")
        if any(sending.undo is not None for sending in decided.sends):
            raise self._useless("sends a command that can be undone", status, "leave undone_by() out")

    def _useless(self, what: str, status: str, remedy: str) -> ProcessError:
        stream = str(self._process.stream)
        return ProcessError(f"a handler of {stream} {what}, and the process is {status}", remedy=remedy, place=stream)

    def _send(self, sending: Sending, *, answered: bool) -> SentCommand:
        due, expires = later_or_last(self._now, sending.delay), sending.expires_after
        sent = SentCommand(
            id=self._new_id(),
            command=command_name(sending.command),
            to=sending.to,
            arguments=sending.arguments,
            due=due,
            expires=None if expires is None else later_or_last(due, expires),
            answered=answered or sending.undo is not None,
        )
        self._sent.append(sent)
        return sent

    def _withdraw(self) -> None:
        """Take back what was not sent before this step, and every timer."""
        self._withdrawn = True
        self._timers.clear()
        self._sent.clear()
        self._at.undoables = [
            replace(one, outcome="withdrawn") if one.outcome == "" else one for one in self._at.undoables
        ]

    def _compensate(self, reason: str) -> None:
        if not self._withdrawn:
            self._withdraw()
        self._timers.clear()
        self._note = reason
        self._at.status = COMPENSATING
        self._undo_next()

    def _undo_next(self) -> None:
        """Send the compensation of what was accepted last; where nothing is left, the instance is compensated."""
        for number in reversed(range(len(self._at.undoables))):
            one = self._at.undoables[number]
            if one.outcome == ACCEPTED:
                sent = SentCommand(
                    id=self._new_id(),
                    command=one.undo,
                    to=one.undo_to,
                    arguments=one.undo_arguments,
                    due=self._now,
                    answered=True,
                )
                self._sent.append(sent)
                self._at.undoables[number] = replace(one, outcome="undoing", undo_id=sent.id)
                return
        self._at.status = COMPENSATED
        if (reaction := self._process.reactions.get(COMPENSATED)) is not None:
            self._call(reaction, None)

    def _end(self) -> None:
        self._at.status = DONE
        self._timers.clear()

    def _new_id(self) -> UUID:
        """An id that follows from the instance, the input, and how many were made before."""
        self._ids += 1
        instance = uuid5(_NAMESPACE, str(self._process.stream))
        return uuid5(instance, f"{self._input.cause.kind} {self._input.cause.id} {self._ids}")

    def _require_no_start(self, given: Input) -> None:
        if any(arrived.ways == {STARTS} for arrived in given.arrived):
            raise self._second_start()

    def _second_start(self) -> ProcessAlreadyStarted:
        name, stream = self._input.cause.name, self._process.stream
        return ProcessAlreadyStarted(
            f"{name} would start {stream}, which is there already",
            remedy="give each instance an id of its own by id=, or mark the method with @reacts as well",
            place=self._input.cause.place,
        )
