"""Settling every record of a batch: it is handled, or stored as a dead letter with its cause.

    the whole run in one transaction
      └ a record fails → everything before it, again in one transaction → the record alone, after a pause, so often as
        the subscription allows → dead letter, or put off → the rest in one transaction

Nothing overtakes a record that is tried again: order holds within every key. One bad record costs its batch one
transaction more, not one a record. If the failed record is unknown (a batch handler, a commit), the run is halved
until it is one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Final, NamedTuple

import structlog

from eventstore.delivery.arrivals import Arrival, Rejected, Released
from eventstore.delivery.attempt import Attempt, AttemptFailed, AttemptHopeless, Delivering, DeliveryReport
from eventstore.delivery.masking import masked_message, masked_traceback
from eventstore.delivery.source import DeadLetter
from eventstore.errors import StoreUnavailable, is_final

log = structlog.get_logger()

Run = Sequence[Arrival]

_LONGEST_PAUSE_SECONDS: Final = 60.0


class _Interrupted(Exception):
    """The batch is to end where it stands: after the handler call at hand, or in a pause before the next attempt."""


class _Failure(NamedTuple):
    attempts: int
    cause: Exception
    hopeless: bool

    @property
    def decided(self) -> bool:
        """Whether another call has no use: it is hopeless, or the handler gave the record back."""
        return self.hopeless or isinstance(self.cause, Released)


class Settling:
    """Settles batches in order; `settled` counts the records of the present one that are done, from its front."""

    def __init__(self, parts: Delivering, attempt: Attempt) -> None:
        self._subscription, self._source = parts.subscription, parts.source
        self._runner, self._halt, self._patience = parts.runner, parts.halt, parts.patience
        self._attempt = attempt
        self._failures: dict[str, _Failure] = {}
        self.settled = 0
        self.report = DeliveryReport()

    def settle(self, arrivals: Run) -> None:
        """Settle a batch, or as much of it as is done when it is halted.

        StoreUnavailable after half a minute without a database; the record's own error where unreadable ones stop the
        subscription; the source's errors.
        """
        self._failures, self.settled, self.report = {}, 0, DeliveryReport()
        try:
            for part in _parts(arrivals):
                self._settle(part)
        except _Interrupted:
            return

    def _settle(self, part: Run) -> None:
        waiting = [part]
        while waiting:
            run = waiting.pop()
            if run and self._halt.is_set():
                raise _Interrupted
            if run:
                waiting.extend(reversed(self._outlasting(run)))

    def _outlasting(self, run: Run) -> list[Run]:
        """Take a step, again and again while the database is away."""
        until, pause, is_first = monotonic() + self._patience, self._subscription.backoff, True
        while True:
            try:
                return self._step(run)
            except StoreUnavailable as error:
                if monotonic() > until:
                    raise
                if is_first:
                    self._warn("database away, trying again", run, error)
                is_first = False
            self._wait(pause)
            pause = min(max(pause, 0.1) * 2, self._patience / 4)

    def _step(self, run: Run) -> list[Run]:
        """Settle a run, or return the runs that take its place."""
        problem, failure = run[0].problem, self._failures.get(run[0].place)
        if problem is not None:
            self._bury(run[0], _Failure(0, problem, hopeless=True))
            return []
        if failure is not None and len(run) == 1:
            if failure.decided or failure.attempts >= self._subscription.attempts:
                self._bury(run[0], failure)
                return []
            self._wait(min(self._subscription.backoff * 2 ** (failure.attempts - 1), _LONGEST_PAUSE_SECONDS))
            self.report.retried += 1
        try:
            report = self._attempt.deliver(run)
        except AttemptHopeless as failed:
            return self._set_apart(run, failed)
        except AttemptFailed as failed:
            return self._parted(run, failed)
        self._done(run[: report.records], report)
        return [run[report.records :]]

    def _parted(self, run: Run, failed: AttemptFailed) -> list[Run]:
        if failed.index is None and len(run) > 1:
            self._warn("handler failed", run, failed.cause)
            half = len(run) // 2
            return [run[:half], run[half:]]
        at = failed.index or 0
        self._note(run[at], failed.cause)
        if failed.done is None:
            return [run[:at], run[at : at + 1], run[at + 1 :]]
        self._done(run[:at], failed.done)
        return [run[at : at + 1], run[at + 1 :]]

    def _set_apart(self, run: Run, failed: AttemptHopeless) -> list[Run]:
        """Part a run at records that are not tried again: each of them stands alone."""
        parts, begin = list[Run](), 0
        for at in failed.indices:
            self._note(run[at], failed.cause, calls=failed.calls, hopeless=True)
            parts += [run[begin:at], run[at : at + 1]]
            begin = at + 1
        return [*parts, run[begin:]]

    def _note(self, culprit: Arrival, cause: Exception, *, calls: int = 1, hopeless: bool = False) -> None:
        before = self._failures.get(culprit.place)
        if before is None and not isinstance(cause, Released | Rejected):
            self._warn("handler failed", [culprit], cause)
        attempts = (before.attempts if before else 0) + calls
        self._failures[culprit.place] = _Failure(
            attempts, cause, hopeless or isinstance(cause, Rejected) or is_final(cause)
        )

    def _done(self, run: Run, report: DeliveryReport) -> None:
        self.settled += len(run)
        self.report.add(report)

    def _bury(self, arrival: Arrival, failure: _Failure) -> None:
        if arrival.problem is not None and self._subscription.unreadable == "stop":
            raise arrival.problem
        letter = DeadLetter(
            arrival=arrival,
            group=self._subscription.group,
            error=failure.cause,
            attempts=failure.attempts,
            time=datetime.now(UTC),
        )
        after = None if failure.hopeless else self._subscription.retry_delay(arrival.retries)
        if after is None:
            self._attempt.bury(arrival, lambda: self._source.dead_letter(letter), dead=True)
            self._warn("dead letter", [arrival], failure.cause, attempts=failure.attempts)
            self._done([arrival], DeliveryReport(dead=1))
            return
        self._attempt.bury(arrival, lambda: self._source.postpone(letter, after), dead=False)
        if not isinstance(failure.cause, Released):
            self._warn("put off", [arrival], failure.cause, attempts=failure.attempts, seconds=after.total_seconds())
        self._done([arrival], DeliveryReport(postponed=1))

    def _warn(self, what: str, run: Run, cause: Exception, **more: object) -> None:
        """Log a failure with its place, text and traceback, values of personal events masked."""
        log.warning(
            what,
            place=run[0].place if len(run) == 1 else f"{run[0].place} to {run[-1].place}",
            group=self._subscription.group,
            handler=self._subscription.name,
            error=type(cause).__name__,
            message=masked_message(cause, run),
            exception=masked_traceback(cause, run),
            **more,
        )

    def _wait(self, seconds: float) -> None:
        # Not stamina: its pause cannot be ended by a stop, and a signal must not wait for a minute's backoff.
        if self._runner.wait(self._halt, seconds):
            raise _Interrupted


def _parts(arrivals: Run) -> Iterator[Run]:
    """Part a batch at the records that cannot be read: each of them stands alone."""
    begin = 0
    for at, arrival in enumerate(arrivals):
        if arrival.problem is not None:
            yield arrivals[begin:at]
            yield arrivals[at : at + 1]
            begin = at + 1
    yield arrivals[begin:]
