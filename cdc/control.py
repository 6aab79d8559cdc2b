"""Connectors brought to the state they are declared in, and watched until they are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from cdc.connectors.base import Connector
from cdc.errors import ConnectorFailed, ConnectorTimeout, ConnectUnavailable, UnknownConnector
from cdc.failures import remedy_for, short_trace
from cdc.status import PAUSED, STOPPED, ConnectorStatus

if TYPE_CHECKING:
    from cdc.connect import ConnectClient

# A cold worker loads its plug-ins and joins its group in 10–20 s on two busy cores.
TIMEOUT: Final = 90.0
_POLL_SECONDS: Final = 0.1

T = TypeVar("T")


class Until(Enum):
    """What to wait for: tasks that run, a first stored offset, or the end of the initial snapshot."""

    RUNNING = "running"
    CAPTURING = "capturing"
    STREAMING = "streaming"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, and the connector's status afterwards; `resumed` if it stood paused or stopped."""

    name: str
    status: ConnectorStatus
    created: bool
    changed: bool
    resumed: bool

    @property
    def was_no_op(self) -> bool:
        """Whether everything stood as declared before."""
        return not (self.created or self.changed or self.resumed)


def apply(
    client: ConnectClient,
    connector: Connector,
    *,
    timeout: float = TIMEOUT,
    until: Until = Until.CAPTURING,
) -> Applied:
    """Bring a connector to its declared configuration and wait until it and all its tasks run.

    Does nothing where all is as declared. `timeout` in seconds bounds the whole call. A connector that fails
    right after it was made is deleted again. Errors: ConnectUnavailable, ConnectRejected (Connect's reason,
    such as a refused password; nothing was changed), ConnectorFailed (causes in short), ConnectorTimeout.
    """
    deadline = _Deadline(connector.name, timeout)
    wait_for_worker(client, timeout=timeout)
    before, wanted = _config(client, connector.name), {"name": connector.name, **connector.config()}
    created, changed = before is None, before is not None and before != wanted
    if created or changed:
        client.put_config(connector.name, connector.config())
    if changed:
        _stop(client, connector.name, deadline)
    resumed = not created and _resume(client, connector.name)
    try:
        status = _wait(client, connector.name, until, deadline)
    except ConnectorFailed:
        if created:
            client.delete(connector.name)
        raise
    return Applied(connector.name, status, created, changed, resumed and not changed)


def restart(
    client: ConnectClient, name: str, *, timeout: float = TIMEOUT, until: Until = Until.CAPTURING
) -> ConnectorStatus:
    """Start a connector and its tasks again, whatever their state, and wait until they run."""
    deadline = _Deadline(name, timeout)
    _stop(client, name, deadline)
    _resume(client, name)
    return _wait(client, name, until, deadline)


def delete(client: ConnectClient, name: str, *, timeout: float = TIMEOUT) -> bool:
    """Remove a connector and wait until it is gone; False where there was none.

    Its offsets, its topics and the source's replication slot stay. A slot nobody reads holds the source's
    log: drop it (cdc.grants.drop_slot) unless the connector comes back.
    """
    deadline = _Deadline(name, timeout)
    try:
        client.delete(name)
    except UnknownConnector:
        return False
    deadline.wait(lambda: None if name in client.connectors() else True, goal="gone")
    return True


def statuses(client: ConnectClient) -> tuple[ConnectorStatus, ...]:
    """Return the status of every connector of the cluster, by name."""
    return tuple(client.status(name) for name in client.connectors())


def check(status: ConnectorStatus) -> ConnectorStatus:
    """Return a status in which nothing stands FAILED; else ConnectorFailed with the causes in short."""
    if status.failure is None:
        return status
    who, trace = status.failure
    causes = short_trace(trace)
    root = causes[-1] if causes else "Kafka Connect gives no reason"
    raise ConnectorFailed(
        f"connector {status.name!r}, {who} FAILED: {root}",
        remedy=_remedy(causes, status.name),
        place=f"{status.name} on worker {status.worker_id}",
        trace=causes,
    )


def _remedy(causes: tuple[str, ...], name: str) -> str:
    return f"{remedy_for(' '.join(reversed(causes)))}; then `factfold cdc restart {name}`"


def wait_for_worker(client: ConnectClient, *, timeout: float = TIMEOUT) -> None:
    """Wait until the worker says it is healthy; ConnectUnavailable with its last words."""
    end = time.monotonic() + min(timeout, client.patience)
    while not (health := client.health()).healthy:
        if time.monotonic() >= end:
            raise ConnectUnavailable(
                f"the Kafka Connect worker at {client.url} is not ready: {health.message}",
                remedy="start the worker, or check the URL (factfold stack status shows the local one)",
                place=client.url,
            )
        time.sleep(_POLL_SECONDS)


def _config(client: ConnectClient, name: str) -> dict[str, str] | None:
    try:
        return client.config(name)
    except UnknownConnector:
        return None


def _stop(client: ConnectClient, name: str, deadline: _Deadline) -> None:
    """Let the tasks of the old configuration go, so that what is seen afterwards is of the new one.

    Until then Connect goes on showing the old tasks, RUNNING or FAILED, for up to a few seconds.
    """
    client.stop(name)
    deadline.wait(lambda: True if client.status(name).stopped else None, goal="stopped")


def _resume(client: ConnectClient, name: str) -> bool:
    halted = client.status(name).state in (PAUSED, STOPPED)
    if halted:
        client.resume(name)
    return halted


def _wait(client: ConnectClient, name: str, until: Until, deadline: _Deadline) -> ConnectorStatus:
    def there() -> ConnectorStatus | None:
        status = _status(client, name)
        if status is None:
            return None
        deadline.seen = check(status).summary()
        return status if status.running and _reached(client, name, until) else None

    return deadline.wait(there, goal=until.value)


def _status(client: ConnectClient, name: str) -> ConnectorStatus | None:
    try:
        return client.status(name)
    except UnknownConnector:
        # A connector just made has no status until the worker has read its own configuration topic.
        return None


def _reached(client: ConnectClient, name: str, until: Until) -> bool:
    if until is Until.RUNNING:
        return True
    offsets = client.offsets(name)
    if until is Until.CAPTURING:
        return bool(offsets)
    return bool(offsets) and not any(offset.in_snapshot for offset in offsets)


class _Deadline:
    """One bound for all the waits of a call; remembers what was seen last, for the message."""

    def __init__(self, name: str, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self.seen = "no status yet"

    def wait(self, condition: Callable[[], T | None], *, goal: str) -> T:
        """Ask until the condition gives something; ConnectorTimeout."""
        while (found := condition()) is None:
            if time.monotonic() >= self._end:
                raise ConnectorTimeout(
                    f"connector {self._name!r} was not {goal} after {self._timeout:.0f} s: {self.seen}",
                    remedy="see the worker's log, or allow more time: a snapshot of large tables takes long",
                    place=self._name,
                )
            time.sleep(_POLL_SECONDS)
        return found
