"""What is due: commands are sent and timers fire, each once, in the order of their due times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import structlog

from eventstore.aggregates.aggregate import Aggregate, commands_of
from eventstore.aggregates.command_schemas import decode_arguments
from eventstore.aggregates.dispatcher import Accepted, Dispatcher, Refusal
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.dialect import is_outage
from eventstore.backends.sql.process_rows import COMMAND, Key, Scheduled
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.ways import ways_of
from eventstore.delivery.calls import HandlerThread
from eventstore.errors import FactfoldError, SubscriptionError, WrongExpectedVersion, is_final
from eventstore.fields.conversions import utc_now
from eventstore.fields.plain_json import dump_plain
from eventstore.processes.engine import Addressed, ProcessEngine, StepAround
from eventstore.processes.errors import ProcessStuck, StepFailed
from eventstore.processes.process import Process, Reply
from eventstore.processes.records import ACCEPTED, EXPIRED, REFUSED, REPLY, TIMEOUT, Cause
from eventstore.processes.stepping import Input

if TYPE_CHECKING:
    from sqlalchemy import Connection


# A transaction that holds locks, and keeps readers of the store waiting, for some tenths of a second at most.
_BATCH: Final = 100
_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = timedelta(seconds=1)
_GLANCE_SECONDS: Final = 0.1
_TIMEOUT_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


@dataclass
class WorkReport:
    """What a worker did: commands sent, timers fired, what failed and comes again or was set aside."""

    commands: int = 0
    timers: int = 0
    failed: int = 0

    @property
    def done(self) -> int:
        """Everything that was due and is not any more."""
        return self.commands + self.timers

    def add(self, other: WorkReport) -> None:
        """Count another report in."""
        self.commands += other.commands
        self.timers += other.timers
        self.failed += other.failed


class ProcessWorker:
    """Sends due commands and timers of processes, and scheduled commands of aggregates. Several workers share the work.

    A batch is one transaction: a command's events, the step of the reply and the finished row commit together. If a
    worker dies, the next one does its work.

    Examples:
        >>> ProcessWorker(store, [Fulfilment], commands=[Order]).run_once().commands
        3
    """

    def __init__(
        self,
        store: SqlEventStore,
        processes: Sequence[type[Process]] = (),
        *,
        commands: Sequence[type[Aggregate]] = (),
        dispatcher: Dispatcher | None = None,
        clock: Callable[[], datetime] = utc_now,
        batch: int = _BATCH,
        timeout: float = _TIMEOUT_SECONDS,
        around: StepAround | None = None,
    ) -> None:
        self._engine = ProcessEngine(store, processes, around=around)
        self._rows = self._engine.rows
        self._database = Database(store.engine, store.tables)
        self._dispatcher = dispatcher or Dispatcher(store)
        self._commands = commands_of(commands)
        for kind in processes:
            for version in kind.versions.values():
                self._commands |= version.commands_sent
        self._clock, self._batch, self._timeout = clock, batch, timeout
        self._sending: Scheduled | None = None
        self._cautious = 0  # how many of the next batches are of one row
        self._driver: Any = None
        self._due: datetime | None = None
        self.report = WorkReport()

    def run(self, *, stop: Event, on_batch: Callable[[WorkReport], None] | None = None) -> WorkReport:
        """Work until `stop` is set. Raises StoreUnavailable, or SubscriptionError if a batch exceeds the timeout."""
        thread = HandlerThread("worker of processes")
        try:
            while not stop.is_set():
                report = self._watched(thread)
                if on_batch is not None and (report.done or report.failed):
                    on_batch(report)
                if not report.done:
                    stop.wait(_GLANCE_SECONDS)
        finally:
            thread.close()
        return self.report

    def _watched(self, thread: HandlerThread) -> WorkReport:
        job = thread.start(self.run_once)
        if not wait([job], self._timeout).done:
            raise self._given_up()
        return job.result()

    def _given_up(self) -> SubscriptionError:
        """Cut off a batch that hangs, which frees its locks, and try its current row again later."""
        (name, row_id), driver = self._at_hand(), self._driver
        if driver is not None:
            ways_of(self._engine.store.engine).sever(self._engine.store.engine, driver)
        error = SubscriptionError(
            f"a handler of {name} did not return within {self._timeout:g} s",
            remedy="find what it waits for: a step reads nothing and waits for nothing",
            place=name,
            code="handler-hung",
        )
        if row_id is not None:
            self._set_back(row_id, error)
        return error

    def _at_hand(self) -> tuple[str, UUID | None]:
        """Return what the batch is at, and the id of its row."""
        if (sending := self._sending) is not None:
            return f"{sending.name} for {sending.stream}", sending.id
        if (stepping := self._engine.at_hand) is not None:
            return "-".join(stepping.key), stepping.input.cause.id
        return "a batch", None

    def run_once(self) -> WorkReport:
        """Do what is due now, a batch at most. Raises StoreUnavailable."""
        report = WorkReport()
        # Looked for by a read: an idle worker takes no write lock.
        with self._database.statement() as connection:
            due = self._due = self._rows.next_due(connection, list(self._engine.processes), list(self._commands))
        if due is None or due > self._clock():
            return report
        for claim in (self._of_processes, self._alone):
            report.add(claim())
        self.report.add(report)
        return report

    def overdue(self) -> float:
        """Return for how many seconds the oldest row has been due, as of the last look. From any thread."""
        due = self._due
        return 0.0 if due is None else max(0.0, (self._clock() - due).total_seconds())

    def drain(self) -> WorkReport:
        """Do everything that is due now and what follows from it. For tests and for programs that end."""
        total = WorkReport()
        while (report := self.run_once()).done or report.failed:
            total.add(report)
            if not report.done:
                break
        return total

    def _of_processes(self) -> WorkReport:
        limit, due = (1 if self._cautious else self._batch), list[Scheduled]()
        self._cautious = max(0, self._cautious - 1)
        try:
            with self._writing() as tx:
                now = self._clock()
                due = self._rows.claim(tx, list(self._engine.processes), now=now, limit=limit)
                return self._work(tx, due, now)
        except StepFailed as failed:
            return self._set_back(UUID(failed.input_id), failed.cause)
        except Exception as error:
            if is_outage(error) or not due:
                raise
            return self._part(due, error)

    def _part(self, due: Sequence[Scheduled], error: Exception) -> WorkReport:
        """Continue one by one after a failure of an unknown row, for example a step that is too large."""
        (row, *others) = due
        if others:
            self._cautious = len(due)
            return WorkReport(failed=1)
        return self._set_back(row.id, error)

    def _alone(self) -> WorkReport:
        if not self._commands:
            return WorkReport()
        with self._writing() as tx:
            now = self._clock()
            due = self._rows.claim_alone(tx, list(self._commands), now=now, limit=self._batch)
            return self._work(tx, due, now)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._database.writing() as tx:
            self._driver = tx.connection.driver_connection
            try:
                yield tx
            finally:
                self._driver = None

    def _work(self, tx: Connection, due: Sequence[Scheduled], now: datetime) -> WorkReport:
        """Do what is due, in its order. After an input an instance may decide otherwise: the rest of it waits."""
        report, done, inputs, waiting = WorkReport(), list[UUID](), list[Addressed](), set[Key | None]()
        free = self._rows.reserve(tx, {row.stream for row in due if row.kind == COMMAND})
        for row in due:
            if row.key is not None and row.key in waiting:
                continue
            if row.kind == COMMAND and row.stream not in free:
                waiting.add(row.key)
                continue
            if row.kind == COMMAND:
                reply = self._sent(tx, row, now)
                if reply is None:
                    report.failed += 1
                    waiting.add(row.key)
                    continue
                report.commands += 1
                if row.key is None:
                    _log_unaccepted(row, reply)
                elif row.answered or not reply.accepted:
                    inputs.append(Addressed(row.key, _input(row, REPLY, now, reply)))
                    waiting.add(row.key)
            elif row.key is not None:
                report.timers += 1
                inputs.append(Addressed(row.key, _input(row, TIMEOUT, now)))
                waiting.add(row.key)
            done.append(row.id)
        self._rows.remove(tx, done)
        self._engine.take(tx, inputs, now=now)
        return report

    def _sent(self, tx: Connection, row: Scheduled, now: datetime) -> Reply | None:
        """Send a command, and return what became of it; None where it failed, and is noted so."""
        if row.expires is not None and row.expires < now:
            return Reply(row.name, EXPIRED, f"it was to be sent until {row.expires:%Y-%m-%d %H:%M:%S} UTC")
        self._sending = row
        try:
            with tx.begin_nested():
                return self._dispatched(tx, row)
        except Exception as error:
            if tx.invalidated:
                raise
            if isinstance(error, WrongExpectedVersion) or is_outage(error):  # another writer was faster
                self._rows.failed(tx, row.id, due=now, error=None)
            else:
                self._fail(tx, row, error, now)
        finally:
            self._sending = None
        return None

    def _dispatched(self, tx: Connection, row: Scheduled) -> Reply:
        command = self._commands.get(row.name)
        if command is None:
            raise ProcessStuck(
                f"this worker does not know the command {row.name!r} that is due",
                remedy="give the worker its aggregate: sends=[…] of the process, or commands=[…], then retry",
                place=f"{row.name} {row.id}",
                code="timer-undecodable",
            )
        arguments = decode_arguments(command, row.arguments)
        sender = self._dispatcher.within(tx).with_metadata(row.metadata).once(row.id)
        result = sender.send(row.target, command, **arguments)
        if isinstance(result, Refusal):
            return Reply(row.name, REFUSED, result.reason)
        assert isinstance(result, Accepted)  # noqa: S101
        return Reply(row.name, ACCEPTED)

    def _fail(self, tx: Connection, row: Scheduled, error: Exception, now: datetime) -> None:
        aside = row.attempts + 1 >= _ATTEMPTS or is_final(error)
        due = None if aside else now + _FIRST_PAUSE * 2**row.attempts
        message = error.message if isinstance(error, FactfoldError) else type(error).__name__
        log.warning("scheduled work failed", name=row.name, id=str(row.id), error=message, set_aside=aside)
        self._rows.failed(tx, row.id, due=due, error=message)

    def _set_back(self, row_id: UUID, error: Exception) -> WorkReport:
        """Note in a transaction of its own what failed; others go on without it."""
        with self._database.writing() as tx:
            for row in self._rows.due(tx, [row_id]):
                self._fail(tx, row, error, self._clock())
        return WorkReport(failed=1)


def _log_unaccepted(row: Scheduled, reply: Reply) -> None:
    """Say what became of a command that no process waits for: its row is deleted."""
    if not reply.accepted:
        log.warning(
            f"scheduled command {reply.outcome}", name=row.name, stream=row.stream, id=str(row.id), reason=reply.reason
        )


def _input(row: Scheduled, kind: str, now: datetime, reply: Reply | None = None) -> Input:
    cause = Cause(
        kind=kind,
        name=row.name,
        id=row.id,
        place=f"{row.name} {row.id}",
        time=now,
        correlation_id=row.correlation_id,
        traceparent=row.traceparent,
        data="{}" if reply is None else dump_plain({"outcome": reply.outcome, "reason": reply.reason}),
    )
    return Input(cause, decided_by=row.causation_id)
