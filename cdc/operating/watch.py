"""Waiting for a connector: for a state, for a failure, for proof that the whole way works."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from cdc.connect.failures import remedy_for, short_trace
from cdc.connect.status import RUNNING, ConnectorStatus, SourceOffset
from cdc.errors import ConnectorFailed, ConnectorTimeout, UnknownConnector
from cdc.source.grants import mark_source

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient

POLL_SECONDS: Final = 0.1
# Failures at start were seen up to half a second after RUNNING.
CONTENT_SECONDS: Final = 3.0
_MARK_SECONDS: Final = 0.5
# A worker that starts a connector asks for its tasks within a second. Now and then that request is lost, without a word
# and for good: the connector runs, no task does, and a restart is the remedy.
TASKLESS_SECONDS: Final = 15.0

T = TypeVar("T")
Until = Literal["running", "streaming"]
Offsets = tuple[SourceOffset, ...]


class Watch:
    """Looks at one connector until it is where it has to be."""

    def __init__(
        self,
        client: ConnectClient,
        name: str,
        *,
        until: Until,
        source: Engine | None,
        deadline: Deadline,
        may_be_idle: bool = False,
    ) -> None:
        self.deadline = deadline
        self._may_be_idle = may_be_idle
        self._client = client
        self._name = name
        self._until = until
        self._source = source
        self._running_since: float | None = None
        self._taskless_since: float | None = None
        self._marked_at = 0.0

    def until_there(self, before: Offsets, *, content_after: float) -> ConnectorStatus:
        """Wait until the connector works; ConnectorFailed, ConnectorTimeout.

        STREAMING is proven by an offset other than `before`. Without a source to mark, so many seconds of
        RUNNING are enough; and 3 s of RUNNING without a task, where that may be.
        """

        def there() -> ConnectorStatus | None:
            status = self._look()
            if status is None:
                return None
            if not status.running:
                return status if self._may_be_idle and self._taskless_for() >= CONTENT_SECONDS else None
            content = self._source is None and self._running_for() >= content_after
            return status if content or self._proven(before) else None

        return self.deadline.wait(there, goal=self._until)

    def _look(self) -> ConnectorStatus | None:
        status = status_of(self._client, self._name)
        if status is None:
            return None
        self.deadline.saw(check(status))
        self._restart_without_tasks(status)
        if not status.running:
            self._running_since = None
        elif self._running_since is None:
            self._running_since = time.monotonic()
        return status

    def _restart_without_tasks(self, status: ConnectorStatus) -> None:
        if status.state != RUNNING or status.tasks:
            self._taskless_since = None
        elif self._taskless_since is None:
            self._taskless_since = time.monotonic()
        elif self._taskless_for() > TASKLESS_SECONDS:
            self._client.restart(self._name)
            self._taskless_since = None

    def _running_for(self) -> float:
        return 0.0 if self._running_since is None else time.monotonic() - self._running_since

    def _taskless_for(self) -> float:
        return 0.0 if self._taskless_since is None else time.monotonic() - self._taskless_since

    def _proven(self, before: Offsets) -> bool:
        if self._until == "running":
            return True
        if self._source is not None and time.monotonic() - self._marked_at > _MARK_SECONDS:
            mark_source(self._source)
            self._marked_at = time.monotonic()
        offsets = self._client.offsets(self._name)
        return offsets != before and any(offset.streamed for offset in offsets)


class Deadline:
    """One bound for all the waits of a call; remembers what was seen last, for the message."""

    def __init__(self, name: str, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self.seen = "no status yet"

    def saw(self, status: ConnectorStatus) -> ConnectorStatus:
        """Remember a status for the message, and give it back."""
        self.seen = status.summary()
        return status

    def wait(self, condition: Callable[[], T | None], *, goal: str) -> T:
        """Ask until the condition gives something; ConnectorTimeout."""
        while (result := condition()) is None:
            if time.monotonic() >= self._end:
                raise ConnectorTimeout(
                    f"connector {self._name!r} was not {goal} after {self._timeout:.0f} s: {self.seen}",
                    remedy="read the worker's log (it may be retrying), or give a long snapshot more time",
                    place=self._name,
                )
            time.sleep(POLL_SECONDS)
        return result


def status_of(client: ConnectClient, name: str) -> ConnectorStatus | None:
    """Return a connector's status; None for one so new that its worker has not read of it yet."""
    try:
        return client.status(name)
    except UnknownConnector:
        return None


def failure_of(status: ConnectorStatus) -> ConnectorFailed | None:
    """Return what a status shows as FAILED, with its causes in short; None where nothing is."""
    if status.failure is None:
        return None
    part, trace = status.failure
    causes = short_trace(trace)
    root = causes[-1] if causes else "Kafka Connect gives no reason"
    return ConnectorFailed(
        f"connector {status.name!r}, {part} FAILED: {root}",
        remedy=remedy_for(" ".join(causes)),
        place=f"{status.name} on worker {status.worker_id}",
        trace=causes,
    )


def check(status: ConnectorStatus) -> ConnectorStatus:
    """Return a status without a FAILED part. Raises ConnectorFailed with its causes otherwise.

    Examples:
        >>> check(client.status(rows.name)).summary()
        'RUNNING, task 0 RUNNING'
    """
    failure = failure_of(status)
    if failure is not None:
        raise failure
    return status
