"""Looking at processes and repairing them: what waits for what, since when, and another attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import InstanceRow, Key, Scheduled
from eventstore.backends.sql.store import SqlEventStore
from eventstore.fields.conversions import utc_now
from eventstore.identifiers import StreamName, check_category
from eventstore.processes.engine import Addressed, ProcessEngine
from eventstore.processes.errors import ProcessError
from eventstore.processes.process import Process
from eventstore.processes.records import COMPENSATING, COMPENSATION_FAILED, ENDED, OPERATOR, RUNNING, UNSTARTED, Cause
from eventstore.processes.stepping import Input
from eventstore.store import RecordedEvent

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LIMIT: Final = 1000
_ALL: Final = 1_000_000
_EVER: Final = timedelta(days=365 * 1000)  # no instance is idle for so long
_OPEN: Final = (UNSTARTED, RUNNING, COMPENSATING, COMPENSATION_FAILED)


Named = type[Process] | str
"""A process: its class, or its name."""


@dataclass(frozen=True, slots=True)
class InstanceStatus(InstanceRow):
    """An instance of a process.

    Attributes:
        process: The process.
        instance: The instance's id.
        status: What the instance is doing.
        version: The number of its last step.
        code: The version of the process's code that it runs by.
        problem: Why it cannot go on, empty if it can.
        started: When it started.
        stepped: When it took its last step.
        idle: The time since its last step.
        waits_for: What has to come next, in words.
        scheduled: Its timers and commands that are still to come.

    Examples:
        >>> Processes(store, [Fulfilment]).show("fulfilment", "o1").status
        'running'
    """

    idle: timedelta
    waits_for: str
    scheduled: tuple[Scheduled, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessCount:
    """How many instances of a process have a status, and how many of them a problem.

    Examples:
        >>> [(count.status, count.instances) for count in Processes(store, [Fulfilment]).stats()]
        [('running', 3)]
    """

    process: str
    status: str
    instances: int
    troubled: int


class Processes:
    """The instances of processes in a store. Instances of the given classes can also be repaired.

    A process is named by its class or by its name. A wrong name is an InvalidIdentifier.

    Examples:
        >>> Processes(store, [Shipping]).instances(stuck=timedelta(days=1))
    """

    def __init__(
        self,
        store: SqlEventStore,
        processes: Sequence[type[Process]] = (),
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._engine = ProcessEngine(store, processes)
        self._rows = self._engine.rows
        self._store = store
        self._database = Database(store.engine, store.tables)
        self._clock = clock

    def instances(
        self,
        process: Named | None = None,
        *,
        stuck: timedelta | None = None,
        ended: bool = False,
        limit: int = _LIMIT,
        part: str = "",
        after: tuple[datetime, str] | None = None,
    ) -> list[InstanceStatus]:
        """Return instances that have not ended, those that are idle longest first.

        Args:
            process: Only those of this process.
            stuck: Only those that have a problem, that have something set aside or overdue for so long, or that took no
                step for so long and wait for no timer.
            ended: Include ended instances.
            limit: The number of instances at most.
            part: Only those with this text in their ids.
            after: Of one process, only those behind this instance: the time of its last step, and its id.

        Returns:
            `process`, `instance`, `status`, `problem`, `started`, `stepped`, `idle` and `waits_for` of each, and in
            `scheduled` its timers and commands that are still to come.
        """
        now = self._clock()
        condition = None if stuck is None else self._rows.stuck(_OPEN, since=now - stuck, now=now)
        statuses = () if ended or stuck is not None else _OPEN
        with self._database.transaction() as tx:
            rows = self._rows.instances(tx, process=_name(process), statuses=statuses, stuck=condition, limit=limit,
                                       part=part, after=after)  # fmt: skip
            return self._statuses(tx, rows, now)

    def troubled(self, process: Named, *, cause: str = "", limit: int = _ALL) -> list[InstanceStatus]:
        """Return the instances that have a problem or something set aside, ended ones too, and say so by this text."""
        found = self.instances(process, stuck=_EVER, ended=True, limit=limit)
        return [one for one in found if one.problem and cause in one.problem]

    def show(self, process: Named, instance: str) -> InstanceStatus:
        """Return one instance. Raises ProcessError."""
        with self._database.transaction() as tx:
            row = self._locked(tx, _key(process, instance))
            return _status(row, self._rows.waiting(tx, [row.key]), self._clock())

    def steps(self, process: Named, instance: str) -> list[RecordedEvent]:
        """Return the steps of an instance, the first one first. Raises ProcessError if there are none."""
        key = _key(process, instance)
        steps = list(self._store.read_stream(StreamName(*key)))
        if not steps:
            raise _unknown(key)
        return steps

    def stats(self, process: Named | None = None) -> list[ProcessCount]:
        """Return how many instances have each status."""
        with self._database.transaction() as tx:
            return [ProcessCount(*counted) for counted in self._rows.counts(tx, _name(process))]

    def retry(self, process: Named, instance: str) -> InstanceStatus:
        """Repeat what was set aside, or the compensation that failed.

        Raises:
            ProcessError: The process or the instance does not exist.
            ProcessError: It has no problem, and nothing of it was set aside. An error of a handler is raised as it is.
        """
        key = _key(process, instance)
        with self._database.writing() as tx:
            row, now = self._locked(tx, key), self._clock()
            if not self._rows.again(tx, key, now=now) and not row.problem:
                cause = f"has nothing to repeat: it is {row.status} without a problem"
                raise _refused(key, cause, "list those that need a retry: factfold processes list --stuck 0s")
            self._engine.take(tx, [self._wish(key, "retry", now)], now=now)
        return self.show(*key)

    def cancel(self, process: Named, instance: str, *, compensate: bool = True) -> InstanceStatus:
        """End an instance.

        Args:
            process: The process.
            instance: The instance's id.
            compensate: Undo what it sent. A compensation that failed stays as it is, and the others follow.

        Raises:
            ProcessError: The process or the instance does not exist.
            ProcessError: The instance has ended, or is compensating already.
        """
        key = _key(process, instance)
        with self._database.writing() as tx:
            row = self._locked(tx, key)
            if row.status in ENDED:
                raise _refused(key, f"has ended: it is {row.status}", "send the missing commands by hand")
            if row.status == COMPENSATING and compensate:
                remedy = "wait for its compensations, or leave the rest as it is: --no-compensate"
                raise _refused(key, "is compensating already", remedy)
            now = self._clock()
            self._engine.take(tx, [self._wish(key, "compensate" if compensate else "cancel", now)], now=now)
        return self.show(*key)

    def migrate(self, process: Named, instance: str) -> InstanceStatus:
        """Move an instance to the newest version of its code, which derives its state from the inputs so far.

        No command is sent again. Timers are set as the new code would have set them.

        Raises:
            ProcessError: The process or the instance does not exist.
            ProcessError: The instance has ended, or is compensating. An error of a handler is raised as it is.
        """
        key = _key(process, instance)
        with self._database.writing() as tx:
            row = self._locked(tx, key)
            if row.status not in (UNSTARTED, RUNNING):
                cause = f"is {row.status}, and goes on by the code it began with"
                raise _refused(key, cause, "migrate instances that run")
            self._engine.move(tx, row, self._kind(key[0]), self.steps(*key), now=self._clock())
        return self.show(*key)

    def _kind(self, process: str) -> type[Process]:
        kind = self._engine.processes.get(process)
        if kind is None:
            known = ", ".join(sorted(self._engine.processes)) or "none"
            raise ProcessError(
                f"no process {process!r} was given. Known are: {known}",
                remedy="give its class: Processes(store, [Shipping]), or module:Shipping to a command",
                code="process-unknown",
            )
        return kind

    def _statuses(self, tx: Connection, rows: Sequence[InstanceRow], now: datetime) -> list[InstanceStatus]:
        waiting: dict[Key | None, list[Scheduled]] = {}
        for scheduled in self._rows.waiting(tx, [row.key for row in rows]):
            waiting.setdefault(scheduled.key, []).append(scheduled)
        return [_status(row, waiting.get(row.key, []), now) for row in rows]

    def _locked(self, tx: Connection, key: Key) -> InstanceRow:
        """Lock an instance; ProcessError."""
        row = self._rows.lock(tx, [key]).get(key)
        if row is None:
            raise _unknown(key)
        return row

    def _wish(self, key: Key, wish: str, now: datetime) -> Addressed:
        self._kind(key[0])
        cause = Cause(kind=OPERATOR, name=wish, id=uuid4(), place="by hand", time=now)
        return Addressed(key, Input(cause))


def _name(process: Named | None) -> str | None:
    """The name of a process; InvalidIdentifier."""
    if process is None:
        return None
    if isinstance(process, type) and issubclass(process, Process):
        return process.category
    return check_category(process)


def _key(process: Named, instance: str) -> Key:
    """The key of an instance; InvalidIdentifier."""
    stream = StreamName(_name(process) or "", instance)
    return stream.category, stream.id


def _status(row: InstanceRow, scheduled: Sequence[Scheduled], now: datetime) -> InstanceStatus:
    return InstanceStatus(
        **asdict(row) | {"problem": row.problem or _set_aside(scheduled)},
        idle=max(now - row.stepped, timedelta()),  # the step's clock may be ahead
        waits_for=_waits_for(row, scheduled, now),
        scheduled=tuple(scheduled),
    )


def _set_aside(scheduled: Sequence[Scheduled]) -> str:
    return "; ".join(f"{one.name} was set aside: {one.error}" for one in scheduled if one.due is None)


def _waits_for(row: InstanceRow, scheduled: Sequence[Scheduled], now: datetime) -> str:
    if row.status == UNSTARTED:
        return "the event that starts it"
    if row.status == COMPENSATION_FAILED:
        return "a retry of its compensation"
    parts = [_what(one, now) for one in scheduled]
    return ", ".join(parts) or ("nothing" if row.status in ENDED else "an event")


def _what(one: Scheduled, now: datetime) -> str:
    what = f"{one.kind} {one.name}"
    if one.due is None:
        return f"{what}, which was set aside"
    return f"{what}, due {'now' if one.due <= now else f'{one.due:%Y-%m-%d %H:%M:%S} UTC'}"


def _refused(key: Key, cause: str, remedy: str) -> ProcessError:
    return ProcessError(f"{key[0]} {key[1]!r} {cause}", remedy=remedy, place="-".join(key))


def _unknown(key: Key) -> ProcessError:
    return ProcessError(
        f"there is no {key[0]} {key[1]!r}",
        remedy="list them: factfold processes list --ended",
        place=f"{key[0]}-{key[1]}",
        code="process-unknown",
    )
