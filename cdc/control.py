"""Connectors brought to the state they are declared in, and watched until they are there."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import structlog

from cdc.catalogue import slot_facts, typed_errors
from cdc.connectors.base import Connector
from cdc.errors import CdcError, ConnectorFailed, ConnectUnavailable, InvalidConnector, UnknownConnector
from cdc.grants import check_life, drop_slot
from cdc.planning import unread
from cdc.status import PAUSED, STOPPED, ConnectorStatus, may_be_idle
from cdc.stopping import stop
from cdc.topics import require_own_topics
from cdc.watch import CONTENT_SECONDS, POLL_SECONDS, Deadline, Until, Watch, status_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect import ConnectClient
    from eventstore.settings import Settings

_LOG = structlog.get_logger(__name__)
State = Literal["RUNNING", "PAUSED", "STOPPED"]
# A cold worker loads its plug-ins and joins its group in 10–20 s on two busy cores.
TIMEOUT: Final = 90.0


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, and the connector's status afterwards.

    `resumed` if it stood paused or stopped, `restarted` if something of it FAILED, though it was as declared. `notes`
    say what was not done: rows that tables held before a running connector captured them are not read.
    """

    name: str
    status: ConnectorStatus
    created: bool = False
    changed: bool = False
    resumed: bool = False
    restarted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def was_no_op(self) -> bool:
        """Whether everything stood as declared before."""
        return not (self.created or self.changed or self.resumed or self.restarted)


def apply(
    client: ConnectClient,
    connector: Connector,
    *,
    source: Engine | None = None,
    settings: Settings | None = None,
    timeout: float = TIMEOUT,
    until: Until = Until.STREAMING,
) -> Applied:
    """Bring a connector to its declared configuration and wait until it works. Nothing where it already does.

    One that FAILED is restarted, also where it is as declared: its cause may have been repaired. `source` is the source
    database, whose role, rights, publication and tables are looked at first: Debezium says nothing of a table it cannot
    see. `settings` are those of the brokers with its topics: with both, an outbox is not applied to a topic that ends
    with an event of another store. `timeout` in seconds bounds the whole call. A new connector that fails is removed
    again with its offsets and, with `source`, the slot it made, unless it has offsets of an earlier life.

    Raises SourceNotReady, ConnectUnavailable or ConnectRejected (Connect's reason, such as a refused password. Nothing
    was changed), ConnectorFailed (causes in short), ConnectorTimeout. Raises ForeignRecord or BrokerUnreachable.
    """
    name, declared = connector.name, {"name": connector.name, **connector.config()}
    watch = _watch(client, name, declared, until=until, source=source, timeout=timeout)
    wait_for_worker(client, timeout=timeout)
    if source is not None:
        connector.check_source(source)
        if settings is not None:
            require_own_topics(settings, connector, source)
    stored = _config(client, name)
    if stored is None:
        return _create(client, connector, watch, source)
    changed = stored != declared
    if changed:
        client.put_config(name, connector.config())
    restarted = not changed and _has_failed(client, name)
    if changed or restarted:
        # What is seen afterwards is of the new tasks: Connect goes on showing the old ones for some seconds.
        stop(client, name, watch.deadline)
    before = client.offsets(name)
    if source is not None:
        check_life(source, name, before)
    resumed = _resume(client, name) and not (changed or restarted)
    status = watch.until_there(before, content_after=CONTENT_SECONDS)
    notes = unread(stored, declared)
    return Applied(name, status, changed=changed, resumed=resumed, restarted=restarted, notes=notes)


def restart(
    client: ConnectClient,
    name: str,
    *,
    source: Engine | None = None,
    timeout: float = TIMEOUT,
    until: Until = Until.STREAMING,
) -> ConnectorStatus:
    """Start a connector and its tasks again, whatever their state, and wait until they work.

    `source`, where it is given, is an engine of the connector's database: it is marked, and the mark waited for.
    """
    watch = _watch(client, name, client.config(name), until=until, source=source, timeout=timeout)
    stop(client, name, watch.deadline)
    before = client.offsets(name)
    _resume(client, name)
    return watch.until_there(before, content_after=CONTENT_SECONDS)


def move(client: ConnectClient, name: str, state: State, *, timeout: float = TIMEOUT) -> ConnectorStatus:
    """Bring a connector to RUNNING, PAUSED or STOPPED and wait until it and all its tasks are there.

    Raises UnknownConnector or ConnectorTimeout. Raises ConnectorFailed if it was to run. Raises InvalidConnector for
    another state.
    """
    if state not in get_args(State):
        raise InvalidConnector(
            f"connector {name!r} cannot be brought to {state!r}",
            remedy=f"choose one of {', '.join(get_args(State))}",
            place="state",
        )
    deadline = Deadline(name, timeout)
    if state == STOPPED:
        return stop(client, name, deadline)
    if state == PAUSED:
        client.pause(name)
        return deadline.wait(lambda: _paused(client, name, deadline), goal="paused")
    watch = _watch(client, name, client.config(name), until=Until.RUNNING, source=None, timeout=timeout)
    client.resume(name)
    return watch.until_there((), content_after=0.0)


def _paused(client: ConnectClient, name: str, deadline: Deadline) -> ConnectorStatus | None:
    status = status_of(client, name)
    if status is None:
        return None
    deadline.saw(status)
    return status if {status.state, *(task.state for task in status.tasks)} == {PAUSED} else None


def reset_offsets(client: ConnectClient, name: str, *, timeout: float = TIMEOUT) -> None:
    """Stop a connector and forget how far it has come. Raises UnknownConnector or ConnectorTimeout.

    Started again, a source takes a new initial snapshot: rows that were deleted meanwhile stay in its topics.
    """
    _forget(client, name, Deadline(name, timeout))


def delete(client: ConnectClient, name: str, *, forget: bool = False, timeout: float = TIMEOUT) -> bool:
    """Remove a connector and wait until it is deleted. False where there was none.

    `forget` removes its offsets too: made again, it takes a new initial snapshot. Its topics and the source's
    replication slot stay. A slot without a reader holds the source's log: drop it (cdc.grants.drop_slot) unless
    the connector comes back.
    """
    deadline = Deadline(name, timeout)
    if name not in client.connectors():
        return False
    # It was there: one that nobody knows any more went by a request whose answer was lost.
    with suppress(UnknownConnector):
        if forget:
            _forget(client, name, deadline)
        client.delete(name)
    deadline.wait(lambda: None if name in client.connectors() else True, goal="gone")
    return True


def statuses(client: ConnectClient) -> tuple[ConnectorStatus, ...]:
    """Return the status of every connector of the cluster, by name. One so new that it has none is left out."""
    return tuple(status for _, status in client.overview().values())


def wait_for_worker(client: ConnectClient, *, timeout: float = TIMEOUT) -> None:
    """Wait until the worker says it is healthy; ConnectUnavailable with its last words."""
    end = time.monotonic() + timeout
    told = False
    while not (health := client.health()).healthy:
        if not told:
            _LOG.info("waiting for the worker", url=client.url, says=health.message, seconds=timeout)
            told = True
        if time.monotonic() >= end:
            raise ConnectUnavailable(
                f"the Kafka Connect worker at {client.url} is not ready: {health.message}",
                remedy="start the worker, or check the URL (factfold stack status shows the local one)",
                place=client.url,
            )
        time.sleep(POLL_SECONDS)


def _watch(
    client: ConnectClient,
    name: str,
    config: Mapping[str, str],
    *,
    until: Until,
    source: Engine | None,
    timeout: float,
) -> Watch:
    deadline, idle = Deadline(name, timeout), may_be_idle(config)
    return Watch(client, name, until=until, source=source, deadline=deadline, may_be_idle=idle)


def _create(client: ConnectClient, connector: Connector, watch: Watch, source: Engine | None) -> Applied:
    """Make a connector STOPPED, to see whether offsets of an earlier life are there, then let it run."""
    name, slot = connector.name, connector.config().get("slot.name")
    had_slot = source is None or slot is None or _has_slot(source, slot)
    client.create(name, connector.config(), state="STOPPED")
    watch.deadline.wait(lambda: _is_stopped(client, name, watch.deadline), goal="made")
    before = client.offsets(name)
    if source is not None:
        check_life(source, name, before)
    client.resume(name)
    try:
        status = watch.until_there(before, content_after=math.inf if connector.has_heartbeats else CONTENT_SECONDS)
    except ConnectorFailed as error:
        # Debezium finishes a snapshot before it looks for the publication: with that offset kept, a later
        # start would take the snapshot for done and miss what happened between. Offsets of an earlier life
        # are not ours to forget, and only a connector that exists can be told to: that one stays, FAILED.
        if before:
            raise
        delete(client, name, forget=True)
        if slot is None or (source is not None and (had_slot or _is_dropped(source, slot))):
            raise
        raise _with_slot(error, slot) from error
    return Applied(name, status, created=True)


def _has_slot(source: Engine, slot: str) -> bool:
    with typed_errors(source), source.connect() as connection:
        return slot_facts(connection, slot) is not None


def _is_dropped(source: Engine, slot: str) -> bool:
    try:
        drop_slot(source, slot)
    except CdcError as error:
        _LOG.warning("slot stays", slot=slot, cause=error.message, remedy=error.remedy)
        return False
    return True


def _with_slot(error: ConnectorFailed, slot: str) -> ConnectorFailed:
    """The same failure, which says too that the slot may have stayed."""
    told = f"it may have made slot {slot}, which holds the source's log: SELECT pg_drop_replication_slot('{slot}')"
    return ConnectorFailed(error.message, remedy=f"{error.remedy}. {told}", place=error.place, trace=error.trace)


def _config(client: ConnectClient, name: str) -> dict[str, str] | None:
    try:
        return client.config(name)
    except UnknownConnector:
        return None


def _has_failed(client: ConnectClient, name: str) -> bool:
    status = status_of(client, name)
    return status is not None and status.failure is not None


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
