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
from cdc.status import FAILED, PAUSED, STOPPED, ConnectorStatus, SourceOffset

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect import ConnectClient

# A cold worker loads its plug-ins and joins its group in 10–20 s on two busy cores.
TIMEOUT: Final = 90.0
_POLL_SECONDS: Final = 0.1

T = TypeVar("T")
Offsets = tuple[SourceOffset, ...]


class Until(Enum):
    """What to wait for.

    RUNNING: Connect says so; tasks do before they have tried anything. STREAMING: the initial snapshot is
    over and a mark written into the source's log came out of the connector as a committed offset, which
    proves the whole way; it takes one heartbeat interval.
    """

    RUNNING = "running"
    STREAMING = "streaming"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, and the connector's status afterwards; `resumed` if it stood paused or stopped."""

    name: str
    status: ConnectorStatus
    created: bool = False
    changed: bool = False
    resumed: bool = False

    @property
    def was_no_op(self) -> bool:
        """Whether everything stood as declared before."""
        return not (self.created or self.changed or self.resumed)


def apply(
    client: ConnectClient,
    connector: Connector,
    *,
    source: Engine | None = None,
    timeout: float = TIMEOUT,
    until: Until = Until.STREAMING,
) -> Applied:
    """Bring a connector to its declared configuration and wait until it works; nothing where it already does.

    `source` is the source database, whose role, rights, publication and tables are looked at first: Debezium
    says nothing of a table it cannot see. `timeout` in seconds bounds the whole call. A new connector that
    fails is removed again, with its offsets. Errors: SourceNotReady, ConnectUnavailable, ConnectRejected
    (Connect's reason, such as a refused password; nothing was changed), ConnectorFailed (causes in short),
    ConnectorTimeout.
    """
    deadline = _Deadline(connector.name, timeout)
    wait_for_worker(client, timeout=timeout)
    if source is not None:
        connector.check_source(source)
    stored = _config(client, connector.name)
    if stored is None:
        return _create(client, connector, until, deadline)
    changed = stored != {"name": connector.name, **connector.config()}
    if changed:
        client.put_config(connector.name, connector.config())
        _stop(client, connector.name, deadline)
    before = client.offsets(connector.name)
    resumed = _resume(client, connector.name)
    status = _wait(client, connector.name, until, before, deadline)
    return Applied(connector.name, status, changed=changed, resumed=resumed and not changed)


def restart(
    client: ConnectClient, name: str, *, timeout: float = TIMEOUT, until: Until = Until.STREAMING
) -> ConnectorStatus:
    """Start a connector and its tasks again, whatever their state, and wait until they work."""
    deadline = _Deadline(name, timeout)
    _stop(client, name, deadline)
    before = client.offsets(name)
    _resume(client, name)
    return _wait(client, name, until, before, deadline)


def delete(client: ConnectClient, name: str, *, forget: bool = False, timeout: float = TIMEOUT) -> bool:
    """Remove a connector and wait until it is gone; False where there was none.

    `forget` removes its offsets too: made again, it takes a new initial snapshot. Its topics and the source's
    replication slot stay. A slot nobody reads holds the source's log: drop it (cdc.grants.drop_slot) unless
    the connector comes back.
    """
    deadline = _Deadline(name, timeout)
    try:
        if forget:
            _forget(client, name, deadline)
        client.delete(name)
    except UnknownConnector:
        return False
    deadline.wait(lambda: None if name in client.connectors() else True, goal="gone")
    return True


def statuses(client: ConnectClient) -> tuple[ConnectorStatus, ...]:
    """Return the status of every connector of the cluster, by name."""
    found = (_status(client, name) for name in client.connectors())
    return tuple(status for status in found if status is not None)


def check(status: ConnectorStatus) -> ConnectorStatus:
    """Return a status in which nothing stands FAILED; else ConnectorFailed with the causes in short."""
    if status.failure is None:
        return status
    who, trace = status.failure
    causes = short_trace(trace)
    root = causes[-1] if causes else "Kafka Connect gives no reason"
    raise ConnectorFailed(
        f"connector {status.name!r}, {who} FAILED: {root}",
        remedy=remedy_for(" ".join(causes)),
        place=f"{status.name} on worker {status.worker_id}",
        trace=causes,
    )


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


def _create(client: ConnectClient, connector: Connector, until: Until, deadline: _Deadline) -> Applied:
    """Make a connector STOPPED, to see whether offsets of an earlier life are there, then let it run."""
    name = connector.name
    client.create(name, connector.config(), stopped=True)
    deadline.wait(lambda: _is_stopped(client, name), goal="made")
    before = client.offsets(name)
    client.resume(name)
    try:
        status = _wait(client, name, until, before, deadline)
    except ConnectorFailed:
        # Debezium finishes a snapshot before it looks for the publication: with that offset kept, a later
        # start would take the snapshot for done and miss what happened between.
        delete(client, name, forget=not before)
        raise
    return Applied(name, status, created=True)


def _config(client: ConnectClient, name: str) -> dict[str, str] | None:
    try:
        return client.config(name)
    except UnknownConnector:
        return None


def _status(client: ConnectClient, name: str) -> ConnectorStatus | None:
    try:
        return client.status(name)
    except UnknownConnector:
        # A connector just made has no status until the worker has read its own configuration topic.
        return None


def _is_stopped(client: ConnectClient, name: str) -> bool | None:
    status = _status(client, name)
    return True if status is not None and status.stopped else None


def _stop(client: ConnectClient, name: str, deadline: _Deadline) -> None:
    """Let the tasks of the old configuration go, so that what is seen afterwards is of the new one.

    Until then Connect goes on showing the old tasks, RUNNING or FAILED, for up to a few seconds.
    """
    client.stop(name)
    deadline.wait(lambda: _is_stopped(client, name), goal="stopped")


def _forget(client: ConnectClient, name: str, deadline: _Deadline) -> None:
    def halted() -> ConnectorStatus | None:
        status = _status(client, name)
        return (
            status if status is not None and not status.tasks and status.state in (STOPPED, FAILED) else None
        )

    client.stop(name)
    # A connector whose own start FAILED cannot be STOPPED, has no offsets, and refuses to talk about them.
    if deadline.wait(halted, goal="stopped").stopped:
        client.delete_offsets(name)


def _resume(client: ConnectClient, name: str) -> bool:
    halted = client.status(name).state in (PAUSED, STOPPED)
    if halted:
        client.resume(name)
    return halted


def _wait(
    client: ConnectClient, name: str, until: Until, before: Offsets, deadline: _Deadline
) -> ConnectorStatus:
    def there() -> ConnectorStatus | None:
        status = _status(client, name)
        if status is None:
            return None
        deadline.seen = check(status).summary()
        if not status.running:
            return None
        return status if until is Until.RUNNING or _moved(client.offsets(name), before) else None

    return deadline.wait(there, goal=until.value)


def _moved(offsets: Offsets, before: Offsets) -> bool:
    return offsets != before and any(offset.streamed for offset in offsets)


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
                    remedy="read the worker's log (it may be retrying), or give a long snapshot more time",
                    place=self._name,
                )
            time.sleep(_POLL_SECONDS)
        return found
