"""Connectors brought to the state they are declared in, and watched until they are there.

Waiting for a connector: for a state, for a failure, for proof that the whole way works.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeVar, get_args

import structlog

from cdc.connect.failures import remedy_for, short_trace
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED, ConnectorStatus, SourceOffset, may_be_idle
from cdc.connectors.declared import Connector
from cdc.errors import (
    CdcError,
    ConnectorFailed,
    ConnectorTimeout,
    ConnectUnavailable,
    InvalidConnector,
    UnknownConnector,
)
from cdc.operating.planning import require_own_topics, unread
from cdc.source.catalogue import slot_facts, typed_errors
from cdc.source.grants import check_life, drop_slot, mark_source
from eventstore.identifiers import require_like

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from cdc.connect.status import WorkerHealth
    from eventstore.settings import Settings

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


@dataclass(slots=True)
class Since:
    """Since when something has been so."""

    began: float | None = None

    def seconds(self, is_so: bool, now: float) -> float:
        """Note whether it is so now, and return for how long it has been."""
        self.began = None if not is_so else now if self.began is None else self.began
        return 0.0 if self.began is None else now - self.began


@dataclass
class Watch:
    """Looks at one connector until it is where it has to be."""

    client: ConnectClient
    name: str
    _: KW_ONLY
    until: Until
    source: Engine | None
    deadline: Deadline
    may_be_idle: bool = False
    _running: Since = field(default_factory=Since, init=False)
    _taskless: Since = field(default_factory=Since, init=False)
    _marked_at: float = field(default=0.0, init=False)

    def until_there(self, before: Offsets, *, content_after: float) -> ConnectorStatus:
        """Wait until the connector works; ConnectorFailed, ConnectorTimeout.

        STREAMING is proven by an offset other than `before`. Without a source to mark, so many seconds of
        RUNNING are enough; and 3 s of RUNNING without a task, where that may be.
        """

        def there() -> ConnectorStatus | None:
            status, now = if_known(self.client.status, self.name), time.monotonic()
            if status is None:
                return None
            self.deadline.saw(check(status))
            running = self._running.seconds(status.running, now)
            taskless = self._taskless.seconds(status.state == RUNNING and not status.tasks, now)
            if taskless > TASKLESS_SECONDS:
                self.client.restart(self.name)
                self._taskless, taskless = Since(), 0.0
            if not status.running:
                return status if self.may_be_idle and taskless >= CONTENT_SECONDS else None
            content = self.source is None and running >= content_after
            return status if content or self._proven(before) else None

        return self.deadline.wait(there, goal=self.until)

    def _proven(self, before: Offsets) -> bool:
        if self.until == "running":
            return True
        if self.source is not None and time.monotonic() - self._marked_at > _MARK_SECONDS:
            mark_source(self.source)
            self._marked_at = time.monotonic()
        offsets = self.client.offsets(self.name)
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


def if_known(ask: Callable[[str], T], name: str) -> T | None:
    """Return what a worker says of a connector; None for one that it does not know, or not yet."""
    try:
        return ask(name)
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


# A worker gives a task 5 s to end (task.shutdown.graceful.timeout.ms); a rebalance takes some more.
_ASK_AGAIN_SECONDS: Final = 10.0

_LOG = structlog.get_logger(__name__)
State = Literal["RUNNING", "PAUSED", "STOPPED"]
# A cold worker loads its plug-ins and joins its group in 10–20 s on two busy cores.
TIMEOUT: Final = 90.0


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply_connector` did, and the connector's status afterwards.

    Attributes:
        created: The connector is new.
        changed: Its configuration was changed.
        resumed: It was paused or stopped, and runs again.
        restarted: Its configuration was as declared, and a part that had FAILED was restarted.
        notes: What was not done: rows that a table had before a running connector captured it are not read.

    Examples:
        >>> applied = apply_connector(client, rows, source=engine)
        >>> applied.created, applied.status.running, applied.notes
        (True, True, ())
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
        """Whether everything was as declared before."""
        return not (self.created or self.changed or self.resumed or self.restarted)


def _declared(connector: Connector) -> tuple[str, dict[str, str]]:
    require_like(connector, "config", "connector", takes="a declared connector, such as PostgresSource(…)")
    return connector.name, {"name": connector.name, **connector.config()}


def apply_connector(
    client: ConnectClient,
    connector: Connector,
    *,
    source: Engine | None = None,
    settings: Settings | None = None,
    timeout: float = TIMEOUT,
    until: Until = "streaming",
) -> Applied:
    """Bring a connector to its declared configuration, restart what FAILED, and wait until it works.

    A new connector that fails is deleted again with its offsets and, with `source`, its slot, unless it has offsets
    from an earlier time.

    Args:
        client: The worker.
        connector: The declaration.
        source: The source database. Its role, rights, publication and tables are checked first, since Debezium reports
            no table that it cannot see.
        settings: The settings of the brokers. With `source`, a topic that ends with an event of another store is
            refused.
        timeout: Seconds for the whole call.
        until: `running` is Connect's word alone. `streaming` is an offset after the first snapshot, or 3 s without any.

    Raises:
        SourceNotReady: The source database lacks something.
        ConnectRejected: Connect refused the configuration, for example its password. Nothing was changed.
        ConnectUnavailable: No worker answered.
        ConnectorFailed: The connector failed, with its causes.
        ConnectorTimeout: It did not work in time.
        ForeignRecord: A topic of the outbox has events of another store. BrokerUnreachable: no broker answered.

    Examples:
        >>> apply_connector(ConnectClient("http://connect:8083"), source, source=engine).status.running
        True
    """
    name, declared = _declared(connector)
    watch = _watch(client, name, declared, until=until, source=source, timeout=timeout)
    wait_for_worker(client, timeout=timeout)
    if source is not None:
        connector.check_source(source)
        if settings is not None:
            require_own_topics(settings, connector, source)
    stored = if_known(client.config, name)
    if stored is None:
        return _create(client, connector, watch, source)
    changed = stored != declared
    if changed:
        client.put_config(name, connector.config())
    standing = if_known(client.status, name)
    restarted = not changed and standing is not None and standing.failure is not None
    if changed or restarted:
        # What is seen afterwards is of the new tasks: Connect goes on showing the old ones for some seconds.
        stop(client, name, watch.deadline)
    before = client.offsets(name)
    if source is not None:
        check_life(source, name, before)
    resumed = _resume(client, name) and not (changed or restarted)
    status = watch.until_there(before, content_after=CONTENT_SECONDS)
    return Applied(name, status, changed=changed, resumed=resumed, restarted=restarted, notes=unread(stored, declared))


def restart_connector(
    client: ConnectClient,
    name: str,
    *,
    source: Engine | None = None,
    timeout: float = TIMEOUT,
    until: Until = "streaming",
) -> ConnectorStatus:
    """Restart a connector and its tasks, whatever their state, and wait until they work.

    Args:
        client: The worker.
        name: The connector.
        source: An engine of its database. A mark is then written there, and must come out of the connector.
        timeout: Seconds for the whole call.
        until: What to wait for, as in `apply_connector`.

    Examples:
        >>> restart_connector(client, rows.name, source=engine).running
        True
    """
    watch = _watch(client, name, client.config(name), until=until, source=source, timeout=timeout)
    stop(client, name, watch.deadline)
    before = client.offsets(name)
    _resume(client, name)
    return watch.until_there(before, content_after=CONTENT_SECONDS)


def set_connector_state(client: ConnectClient, name: str, state: State, *, timeout: float = TIMEOUT) -> ConnectorStatus:
    """Bring a connector to RUNNING, PAUSED or STOPPED, and wait until it and all its tasks are.

    Raises:
        UnknownConnector: Connect does not know it.
        ConnectorTimeout: It did not get there in time.
        ConnectorFailed: It failed instead of running.
        InvalidConnector: There is no such state.

    Examples:
        >>> set_connector_state(client, rows.name, "PAUSED").state
        'PAUSED'
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
        return deadline.wait(lambda: _seen(client, name, deadline, _is_paused), goal="paused")
    watch = _watch(client, name, client.config(name), until="running", source=None, timeout=timeout)
    client.resume(name)
    return watch.until_there((), content_after=0.0)


def _seen(
    client: ConnectClient, name: str, deadline: Deadline, is_there: Callable[[ConnectorStatus], bool]
) -> ConnectorStatus | None:
    status = if_known(client.status, name)
    return status if status is not None and is_there(deadline.saw(status)) else None


def _is_paused(status: ConnectorStatus) -> bool:
    return {status.state, *(task.state for task in status.tasks)} == {PAUSED}


def reset_offsets(client: ConnectClient, name: str, *, timeout: float = TIMEOUT) -> None:
    """Stop a connector and delete its offsets. Raises UnknownConnector or ConnectorTimeout.

    Its next start takes an initial snapshot. Rows that were deleted meanwhile stay in its topics.

    Examples:
        >>> reset_offsets(client, rows.name)
        >>> apply_connector(client, rows, source=engine).resumed
        True
    """
    _forget(client, name, Deadline(name, timeout))


def delete_connector(client: ConnectClient, name: str, *, forget: bool = False, timeout: float = TIMEOUT) -> bool:
    """Delete a connector and wait until Connect has deleted it. Return False if there was none.

    Its topics and the replication slot stay. A slot without a reader retains the source's log: drop it with `drop_slot`
    unless the connector comes back.

    Args:
        client: The worker.
        name: The connector.
        forget: Delete its offsets too. Created again, it takes an initial snapshot.
        timeout: Seconds for the whole call.

    Examples:
        >>> delete_connector(client, rows.name)
        True
    """
    deadline = Deadline(name, timeout)
    if name not in client.connectors():
        return False
    # It was there. If it is unknown now, an earlier request deleted it, and its answer was lost.
    with suppress(UnknownConnector):
        if forget:
            _forget(client, name, deadline)
        client.delete(name)
    deadline.wait(lambda: None if name in client.connectors() else True, goal="gone")
    return True


def wait_for_worker(client: ConnectClient, *, timeout: float = TIMEOUT) -> None:
    """Wait until the worker says it is healthy; ConnectUnavailable with its last words."""
    end = time.monotonic() + timeout
    logged = False
    while not (health := client.health()).healthy:
        if not logged:
            _LOG.info("waiting for the worker", url=client.url, says=health.message, seconds=timeout)
            logged = True
        if time.monotonic() >= end:
            raise not_ready(client, health)
        time.sleep(POLL_SECONDS)


def not_ready(client: ConnectClient, health: WorkerHealth) -> ConnectUnavailable:
    """Build the error of a worker that is not healthy."""
    return ConnectUnavailable(
        f"the Kafka Connect worker at {client.url} is not ready: {health.message}",
        remedy="start the worker, or check the URL (factfold stack status shows the local one)",
        place=client.url,
    )


def _watch(
    client: ConnectClient, name: str, config: Mapping[str, str], *, until: Until, source: Engine | None, timeout: float
) -> Watch:
    if until not in get_args(Until):
        raise InvalidConnector(
            f"connector {name!r} cannot be waited for until {until!r}",
            remedy=f"choose one of {', '.join(get_args(Until))}",
            place="until",
        )
    deadline, idle = Deadline(name, timeout), may_be_idle(config)
    return Watch(client, name, until=until, source=source, deadline=deadline, may_be_idle=idle)


def _create(client: ConnectClient, connector: Connector, watch: Watch, source: Engine | None) -> Applied:
    """Make a connector STOPPED, to see whether offsets of an earlier life are there, then let it run."""
    name, slot = connector.name, connector.config().get("slot.name")
    had_slot = source is None or slot is None or _has_slot(source, slot)
    client.create(name, connector.config(), state="STOPPED")
    watch.deadline.wait(lambda: _seen(client, name, watch.deadline, lambda made: made.stopped), goal="made")
    before = client.offsets(name)
    if source is not None:
        check_life(source, name, before)
    client.resume(name)
    try:
        status = watch.until_there(before, content_after=math.inf if connector.has_heartbeats else CONTENT_SECONDS)
    except ConnectorFailed as error:
        # Debezium finishes a snapshot before it looks for the publication: with that offset kept, a later
        # start would take the snapshot for done and miss what happened between. Offsets of an earlier life
        # are not ours to forget, and only an existing connector can forget them: that one stays, FAILED.
        if before:
            raise
        delete_connector(client, name, forget=True)
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
    hint = f"it may have made slot {slot}, which holds the source's log: SELECT pg_drop_replication_slot('{slot}')"
    return ConnectorFailed(error.message, remedy=f"{error.remedy}. {hint}", place=error.place, trace=error.trace)


def _forget(client: ConnectClient, name: str, deadline: Deadline) -> None:
    # A connector whose own start FAILED cannot be STOPPED, has no offsets, and refuses to talk about them.
    if stop(client, name, deadline, or_failed=True).stopped:
        client.delete_offsets(name)


def _resume(client: ConnectClient, name: str) -> bool:
    halted = client.status(name).state in (PAUSED, STOPPED)
    if halted:
        client.resume(name)
    return halted


def stop(client: ConnectClient, name: str, deadline: Deadline, *, or_failed: bool = False) -> ConnectorStatus:
    """Stop a connector, wait until none of its tasks is left and return its status; ConnectorTimeout.

    With `or_failed`, a connector that stands FAILED without a task counts too. The stop is asked for again after 10 s,
    since it may be over and not look so: an exactly-once task that is just starting asks the very thread that waits for
    its end (seen with Kafka 4.3: 5 s, then it is cancelled), and may write its state when those of stopped tasks have
    been cleared away already. That state stays until the next rebalance, which another stop makes. A connector whose
    own start FAILED receives no stop. It is restarted at once, and starts as a STOPPED one.
    """
    before = None if or_failed else if_known(client.status, name)
    asked = _ask(client, name, again=before if before is not None and before.state == FAILED else None)

    def halted() -> ConnectorStatus | None:
        nonlocal asked
        status = if_known(client.status, name)
        if status is not None and deadline.saw(status) and _has_halted(status, or_failed=or_failed):
            return status
        if time.monotonic() - asked > _ASK_AGAIN_SECONDS:
            asked = _ask(client, name, again=status)
        return None

    return deadline.wait(halted, goal="stopped")


def _has_halted(status: ConnectorStatus, *, or_failed: bool) -> bool:
    return status.stopped or (or_failed and status.state == FAILED and not status.tasks)


def _ask(client: ConnectClient, name: str, *, again: ConnectorStatus | None = None) -> float:
    client.stop(name)
    if again is not None and again.state != STOPPED:
        # The target state STOPPED is stored already, and workers get no second notice. A restart reads it.
        client.restart(name, include_tasks=False)
    return time.monotonic()
