"""Steps of many instances in one transaction: locked, loaded, taken, and stored by a statement each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from eventstore.backends.sql.dialect import is_outage
from eventstore.backends.sql.process_rows import COMMAND, TIMER, InstanceRow, Key, ProcessRows, Scheduled
from eventstore.backends.sql.store import SqlEventStore
from eventstore.errors import DeclarationError
from eventstore.fields.plain_json import dump_plain
from eventstore.identifiers import NO_STREAM, NO_VERSION, StreamName
from eventstore.personal.sealing import Disclosed
from eventstore.processes.errors import ProcessAlreadyStarted, ProcessVersionMissing, StepFailed
from eventstore.processes.process import Process, impersonal
from eventstore.processes.records import ENDED, EVENT, OPERATOR, RUNNING, UNSTARTED, Cause
from eventstore.processes.stepping import Input, replayed, step
from eventstore.store import NO_METADATA, AppendResult, Metadata, NewEvent, RecordedEvent, StreamAppend

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Addressed:
    """An input and the instance it is for."""

    key: Key
    input: Input


StepAround = Callable[[Addressed], AbstractContextManager[str | None]]
"""What stands around each step, such as a span; it gives the traceparent of what the step decides."""


@contextmanager
def _as_caused(addressed: Addressed) -> Iterator[str | None]:
    """What a step decides has the traceparent of its input."""
    yield addressed.input.cause.traceparent


class ProcessEngine:
    """Takes steps of the instances of some processes in one store; DeclarationError for two of one name.

    `around` opens what stands around each step.
    """

    def __init__(
        self, store: SqlEventStore, processes: Sequence[type[Process]], *, around: StepAround | None = None
    ) -> None:
        self.store = store
        self._around = around or _as_caused
        self.processes: Mapping[str, type[Process]] = {kind.category: kind for kind in processes}
        self.rows = ProcessRows(store.tables)
        self.at_hand: Addressed | None = None  # read by the thread that watches for a handler that hangs
        if len(self.processes) < len(processes):
            raise DeclarationError(
                "two processes have one name",
                remedy="name one of them otherwise: class Other(Process, category=…). Former versions go into earlier=",
            )

    def take_events(self, tx: Connection, events: Iterable[RecordedEvent], *, now: datetime) -> None:
        """Let every process take what of these events is for it; the errors of `take`."""
        self.take(tx, [addressed for event in events for addressed in self._addressed(event)], now=now, begin=True)

    def take(self, tx: Connection, inputs: Sequence[Addressed], *, now: datetime, begin: bool = False) -> None:
        """Let instances take inputs, in their order; what they decided is stored in the caller's transaction.

        `begin` lets inputs begin an instance. StepFailed names the instance whose handler raised; the store's errors.
        """
        if not inputs:
            return
        keys = {addressed.key for addressed in inputs}
        if begin:
            self.rows.begin(tx, [self._new(key, now) for key in sorted(keys)])
        rows = self.rows.lock(tx, keys)
        self._require_code(rows, inputs)
        taken = _Taken(self.loaded(tx, rows), rows, now, self._around)
        try:
            for addressed in inputs:
                if addressed.key in rows:
                    self.at_hand = addressed
                    self._take(taken, addressed)
        finally:
            self.at_hand = None
        self._store(tx, taken)

    def _take(self, taken: _Taken, addressed: Addressed) -> None:
        """Take a step, except for a repeated event that would start the instance again, or come to it late."""
        late = addressed.input.cause.kind == EVENT and taken.status(addressed.key) not in (UNSTARTED, RUNNING)
        if late and self._is_repeated(addressed):
            return
        try:
            taken.take(addressed)
        except StepFailed as failed:
            if not isinstance(failed.cause, ProcessAlreadyStarted) or not self._is_repeated(addressed):
                raise

    def _is_repeated(self, addressed: Addressed) -> bool:
        """Say whether an instance took this very input before, which the inbox does not remember any more."""
        steps = self.store.read_stream(StreamName(*addressed.key))
        return any(step.data["cause"]["id"] == addressed.input.cause.id for step in steps)

    def move(
        self, tx: Connection, row: InstanceRow, kind: type[Process], steps: Sequence[RecordedEvent], *, now: datetime
    ) -> None:
        """Go on with a locked instance by another version of its code: the state is what that makes of all its steps.

        The code that it began with is not needed. Its timers are those that the new code would have set; commands stay
        as they were sent. ProcessError where the new code would have ended it; the errors of its handlers.
        """
        former = Process(row.instance)  # which reads where the instance is at, and leaves its fields alone
        Process.fold(former, steps)
        inputs = [(Cause(**step.data["cause"]), step.time) for step in steps]
        cause = Cause(kind=OPERATOR, name="migrate", id=uuid4(), place="by hand", time=now)
        process, stepped = replayed(kind, former, inputs, cause, note=f"from {row.code}")
        self.rows.withdraw(tx, [row.key], kind=TIMER)
        taken = _Taken({row.key: process}, {row.key: row}, now, self._around)
        taken.add(row.key, stepped, NO_METADATA)
        self._store(tx, taken)

    def _addressed(self, event: RecordedEvent) -> Iterable[Addressed]:
        stream_id = StreamName.parse(event.stream).id
        for name, kind in self.processes.items():
            by_instance = kind.reactions.addressed(event.type, event.schema_version, event.data, stream_id)
            if by_instance:
                data = impersonal(kind.reactions.kinds[event.type], event.data)
                cause = _cause(event, data.marked() if isinstance(data, Disclosed) else data)
                yield from (Addressed((name, instance), Input(cause, given)) for instance, given in by_instance.items())

    def _new(self, key: Key, now: datetime) -> InstanceRow:
        StreamName(key[0], key[1])  # which says what is wrong with an id that no stream can have
        code = self.processes[key[0]].code_version
        return InstanceRow(*key, UNSTARTED, NO_VERSION, code, "", now, now)

    def loaded(self, tx: Connection, rows: Mapping[Key, InstanceRow]) -> dict[Key, Process]:
        """Return instances as their last step left them, which may record but what changed since one before it."""
        instances = {key: self._class_of(row)(key[1]) for key, row in rows.items()}
        places = [(str(instances[key].stream), row.version) for key, row in rows.items() if row.version > NO_VERSION]
        by_stream = {str(process.stream): process for process in instances.values()}
        store = self.store.within(tx)
        last = store.at(places)
        with_rest = [(one.stream, one.version - one.data["rest"]) for one in last if one.data.get("rest")]
        for event in [*store.at(with_rest), *last]:
            process = by_stream[event.stream]
            type(process).fold(process, [event])
        return instances

    def _require_code(self, rows: Mapping[Key, InstanceRow], inputs: Sequence[Addressed]) -> None:
        """Raise StepFailed for an instance whose code is not here: the others of its batch can go on."""
        for addressed in inputs:
            if addressed.key in rows:
                try:
                    self._class_of(rows[addressed.key])
                except ProcessVersionMissing as missing:
                    raise StepFailed(*addressed.key, str(addressed.input.cause.id), missing) from missing

    def _class_of(self, row: InstanceRow) -> type[Process]:
        kind = self.processes[row.process].versions.get(row.code)
        if kind is None:
            raise ProcessVersionMissing(
                f"{row.process} {row.instance!r} began with version {row.code} of its code, which is missing",
                remedy=f"give {self.processes[row.process].__name__} the class of that version by earlier=[…], or move "
                "the instance: factfold processes migrate",
                place=f"{row.process}-{row.instance}",
            )
        return kind

    def _store(self, tx: Connection, taken: _Taken) -> None:
        appends = taken.appends()
        if not appends:
            return
        appended = self.store.within(tx).append_batch(appends)
        for kind in (COMMAND, TIMER):
            self.rows.withdraw(tx, taken.changes.withdrawn[kind], kind=kind)
        self.rows.cancel(tx, taken.changes.cancelled)
        self.rows.schedule(tx, taken.scheduled(appended))
        self.rows.save(tx, taken.standing())


@dataclass
class _Changes:
    """What steps change in what is scheduled: deletions first, then new rows with the number of their step."""

    withdrawn: dict[str, set[Key]] = field(default_factory=lambda: {COMMAND: set(), TIMER: set()})
    cancelled: set[tuple[str, str, str]] = field(default_factory=set)
    rows: dict[tuple[Any, ...], tuple[int, Scheduled]] = field(default_factory=dict)

    def add(self, key: Key, number: int, stepped: Process.Stepped, metadata: Metadata, now: datetime) -> None:
        """Add a step."""
        if stepped.withdrawn:
            self._withdraw(key, COMMAND)
        if stepped.withdrawn or stepped.status in ENDED:
            self._withdraw(key, TIMER)
        for name in [*stepped.cancelled, *(timer.name for timer in stepped.timers)]:
            self.cancelled.add((*key, name))
            self.rows.pop((TIMER, *key, name), None)
        for row in _rows(key, stepped, metadata, now):
            self.rows[(row.kind, *key, row.name if row.kind == TIMER else row.id)] = number, row

    def _withdraw(self, key: Key, kind: str) -> None:
        self.withdrawn[kind].add(key)
        self.rows = {at: new for at, new in self.rows.items() if new[1].key != key or new[1].kind != kind}


class _Taken:
    """Instances at hand, and the steps they have taken so far."""

    def __init__(
        self, instances: Mapping[Key, Process], rows: Mapping[Key, InstanceRow], now: datetime, around: StepAround
    ) -> None:
        self._instances, self._rows, self._now, self._around = instances, rows, now, around
        self._events: dict[Key, list[NewEvent]] = {}
        self.changes = _Changes()

    def status(self, key: Key) -> str:
        """Return what an instance is at."""
        return self._instances[key].standing.status

    def take(self, addressed: Addressed) -> None:
        """Take one step."""
        key, given = addressed.key, addressed.input
        try:
            with self._around(addressed) as traceparent:
                stepped = step(self._instances[key], given, now=self._now)
        except Exception as error:
            if is_outage(error):
                raise
            raise StepFailed(*key, str(given.cause.id), error) from error
        if stepped is not None:
            self.add(key, stepped, replace(given.metadata, traceparent=traceparent))

    def add(self, key: Key, stepped: Process.Stepped, metadata: Metadata) -> None:
        """Add a step that was taken."""
        steps = self._events.setdefault(key, [])
        steps.append(NewEvent(stepped, metadata=metadata))
        self.changes.add(key, len(steps) - 1, stepped, metadata, self._now)

    def scheduled(self, appended: Sequence[AppendResult]) -> list[Scheduled]:
        """What to schedule, caused by the events of the steps that decided it."""
        ids = {key: result.ids for key, result in zip(self._events, appended, strict=True)}
        return [
            replace(row, causation_id=str(ids[row.process, row.instance][number]))  # type: ignore[index]
            for number, row in self.changes.rows.values()
        ]

    def appends(self) -> list[StreamAppend]:
        """What to append: the steps of each instance."""
        return [
            StreamAppend(self._instances[key].stream, events, self._expected(key))
            for key, events in self._events.items()
        ]

    def standing(self) -> list[InstanceRow]:
        """Where the instances that took a step stand now."""
        return [self._standing(self._rows[key], self._instances[key]) for key in self._events]

    def _standing(self, row: InstanceRow, process: Process) -> InstanceRow:
        at = process.standing
        own = replace(row, version=process.version, code=process.code_version)
        return replace(own, status=at.status, problem=at.problem, stepped=self._now)

    def _expected(self, key: Key) -> Any:
        version = self._rows[key].version
        return NO_STREAM if version == NO_VERSION else version


def _rows(key: Key, stepped: Process.Stepped, metadata: Metadata, now: datetime) -> Iterable[Scheduled]:
    why = {"correlation_id": metadata.correlation_id, "traceparent": metadata.traceparent}
    own: dict[str, Any] = {"process": key[0], "instance": key[1], "set_at": now, **why}
    for sent in stepped.sent:
        values = asdict(sent)
        yield Scheduled(kind=COMMAND, name=values.pop("command"), target=values.pop("to"), **values, **own)
    for timer in stepped.timers:
        yield Scheduled(kind=TIMER, **asdict(timer), **own)


def _cause(event: RecordedEvent, data: Mapping[str, Any]) -> Cause:
    return Cause(
        kind=EVENT,
        name=event.type,
        id=event.id,
        place=f"{event.stream}@{event.version}",
        time=event.time,
        schema_version=event.schema_version,
        data=dump_plain(data),
        correlation_id=event.metadata.correlation_id,
        traceparent=event.metadata.traceparent,
    )
