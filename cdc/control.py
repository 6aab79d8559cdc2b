"""Connectors brought to the state they are declared in, and watched until they are there."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.connectors.base import Connector
from cdc.errors import ConnectorFailed, ConnectUnavailable, UnknownConnector
from cdc.grants import check_life
from cdc.status import PAUSED, RUNNING, STOPPED, ConnectorStatus
from cdc.stopping import stop
from cdc.watch import CONTENT_SECONDS, POLL_SECONDS, Deadline, Until, Watch, check, status_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect import ConnectClient

# A cold worker loads its plug-ins and joins its group in 10–20 s on two busy cores.
TIMEOUT: Final = 90.0


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
    fails is removed again with its offsets, unless it has some of an earlier life.

    Errors: SourceNotReady, ConnectUnavailable, ConnectRejected (Connect's reason, such as a refused password;
    nothing was changed), ConnectorFailed (causes in short), ConnectorTimeout.
    """
    watch = _watch(client, connector.name, until=until, source=source, timeout=timeout)
    wait_for_worker(client, timeout=timeout)
    if source is not None:
        connector.check_source(source)
    stored = _config(client, connector.name)
    if stored is None:
        return _create(client, connector, watch, source)
    changed = stored != {"name": connector.name, **connector.config()}
    if changed:
        client.put_config(connector.name, connector.config())
        # What is seen afterwards is of the new tasks: Connect goes on showing the old ones for some seconds.
        stop(client, connector.name, watch.deadline)
    before = client.offsets(connector.name)
    if source is not None:
        check_life(source, connector.name, before)
    resumed = _resume(client, connector.name)
    status = watch.until_there(before, content_after=CONTENT_SECONDS)
    return Applied(connector.name, status, changed=changed, resumed=resumed and not changed)


def restart(
    client: ConnectClient,
    name: str,
    *,
    source: Engine | None = None,
    timeout: float = TIMEOUT,
    until: Until = Until.STREAMING,
) -> ConnectorStatus:
    """Start a connector and its tasks again, whatever their state, and wait until they work."""
    watch = _watch(client, name, until=until, source=source, timeout=timeout)
    stop(client, name, watch.deadline)
    before = client.offsets(name)
    _resume(client, name)
    return watch.until_there(before, content_after=CONTENT_SECONDS)


def move(client: ConnectClient, name: str, state: str, *, timeout: float = TIMEOUT) -> ConnectorStatus:
    """Bring a connector to RUNNING, PAUSED or STOPPED and wait until it and all its tasks are there.

    UnknownConnector, ConnectorTimeout; ConnectorFailed where it was to run.
    """
    deadline = Deadline(name, timeout)
    if state == STOPPED:
        return stop(client, name, deadline)
    {RUNNING: client.resume, PAUSED: client.pause}[state](name)

    def there() -> ConnectorStatus | None:
        status = status_of(client, name)
        if status is None:
            return None
        deadline.saw(status)
        if state == RUNNING:
            return status if check(status).running else None
        tasks = {task.state for task in status.tasks}
        return status if status.state == state and tasks <= {state} else None

    return deadline.wait(there, goal=state.lower())


def reset_offsets(client: ConnectClient, name: str, *, timeout: float = TIMEOUT) -> None:
    """Stop a connector and forget how far it has come; UnknownConnector, ConnectorTimeout.

    Started again, a source takes a new initial snapshot: rows that were deleted meanwhile stay in its topics.
    """
    _forget(client, name, Deadline(name, timeout))


def delete(client: ConnectClient, name: str, *, forget: bool = False, timeout: float = TIMEOUT) -> bool:
    """Remove a connector and wait until it is gone; False where there was none.

    `forget` removes its offsets too: made again, it takes a new initial snapshot. Its topics and the source's
    replication slot stay. A slot nobody reads holds the source's log: drop it (cdc.grants.drop_slot) unless
    the connector comes back.
    """
    deadline = Deadline(name, timeout)
    try:
        if forget:
            _forget(client, name, deadline)
        client.delete(name)
    except UnknownConnector:
        return False
    deadline.wait(lambda: None if name in client.connectors() else True, goal="gone")
    return True


def statuses(client: ConnectClient) -> tuple[ConnectorStatus, ...]:
    """Return the status of every connector of the cluster, by name; one so new that it has none is left out."""
    return tuple(status for _, status in client.overview().values())


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
        time.sleep(POLL_SECONDS)


def _watch(client: ConnectClient, name: str, *, until: Until, source: Engine | None, timeout: float) -> Watch:
    return Watch(client, name, until=until, source=source, deadline=Deadline(name, timeout))


def _create(client: ConnectClient, connector: Connector, watch: Watch, source: Engine | None) -> Applied:
    """Make a connector STOPPED, to see whether offsets of an earlier life are there, then let it run."""
    name = connector.name
    client.create(name, connector.config(), state="STOPPED")
    watch.deadline.wait(lambda: _is_stopped(client, name, watch.deadline), goal="made")
    before = client.offsets(name)
    if source is not None:
        check_life(source, name, before)
    client.resume(name)
    try:
        status = watch.until_there(before, content_after=math.inf if connector.has_heartbeats else CONTENT_SECONDS)
    except ConnectorFailed:
        # Debezium finishes a snapshot before it looks for the publication: with that offset kept, a later
        # start would take the snapshot for done and miss what happened between. Offsets of an earlier life
        # are not ours to forget, and only a connector that exists can be told to: that one stays, FAILED.
        if not before:
            delete(client, name, forget=True)
        raise
    return Applied(name, status, created=True)


def _config(client: ConnectClient, name: str) -> dict[str, str] | None:
    try:
        return client.config(name)
    except UnknownConnector:
        return None


def _is_stopped(client: ConnectClient, name: str, deadline: Deadline) -> bool | None:
    status = status_of(client, name)
    return True if status is not None and deadline.saw(status).stopped else None


def _forget(client: ConnectClient, name: str, deadline: Deadline) -> None:
    # A connector whose own start FAILED cannot be STOPPED, has no offsets, and refuses to talk about them.
    if stop(client, name, deadline, or_failed=True).stopped:
        client.delete_offsets(name)


def _resume(client: ConnectClient, name: str) -> bool:
    halted = client.status(name).state in (PAUSED, STOPPED)
    if halted:
        client.resume(name)
    return halted
