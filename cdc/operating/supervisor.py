"""Connectors that fail are started again, with longer and longer waits between, and given up loudly.

Every failure is treated alike, also one that no restart cures, such as a lost slot. An operator may cure it meanwhile,
and a restart in vain costs nothing. The log has the cause and the remedy each time.

How a connector does: its states in Connect, its slot in the source, how old the last change is that it brought.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from cdc.connect.status import (
    PAUSED,
    RUNNING,
    STOPPED,
    ConnectorStatus,
    SourceOffset,
    is_well,
    may_be_idle,
)
from cdc.connectors.declared import Connector
from cdc.errors import CdcError, ConnectorFailed, ConnectRejected, RestartsExhausted, UnknownConnector
from cdc.operating.control import TASKLESS_SECONDS, Since, failure_of
from cdc.source.captured_columns import advice_on
from cdc.source.catalogue import ReplicationSlot, clock, slot_facts, typed_errors
from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics
from eventstore.restarts import Restarts

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(f"factfold_connector_{name}", Kind.GAUGE, help, ("connector", *labels))


WELL: Final = _gauge("is_well", "1 if the connector and all its tasks run, or 0.")
TASKS: Final = _gauge("tasks", "Tasks by their state in Kafka Connect.", "state")
LAST_EVENT: Final = _gauge(
    "last_event_timestamp_seconds", "When the newest transaction that came out of the connector was committed."
)
SLOT_ACTIVE: Final = _gauge("slot_is_active", "1 if the connector's replication slot is being read, or 0.", "slot")
SLOT_LAG: Final = _gauge("slot_lag_bytes", "Bytes of log that the slot's reader has not confirmed.", "slot")
SLOT_SIZE: Final = _gauge("slot_retained_bytes", "Bytes of log that the source database holds for the slot.", "slot")
SLOT_LOST: Final = _gauge("slot_is_lost", "1 if the slot lost its place, or is about to lose it.", "slot")
_RESTARTED: Final = Family(
    "factfold_connector_restarts_total", Kind.COUNTER, "Restarts of a connector by the supervisor.", ("connector",)
)
GIVEN_UP: Final = _gauge("is_given_up", "1 if the supervisor no longer restarts the connector, or 0.")
_ENDANGERED: Final = ("unreserved", "lost")


@dataclass(frozen=True, slots=True)
class ConnectorHealth:
    """A connector's states, its replication slot, and the age of its last event.

    A quiet source makes the last event old although nothing is wrong: the slot is then active and its lag stays small,
    since heartbeats move the slot and are no events.

    Attributes:
        status: The state of the connector and its tasks.
        slot: The replication slot, None without a source or without a slot of this name.
        last_event_age: Seconds since the commit of the newest transaction that the connector published, None before the
            first event. The source's clock decides, if the source is given.
        well: It runs with all its tasks. A connector of MirrorMaker may have none while nothing matches.
        advice: For a row that is larger than a request: its tables, the SQL that finds it, the remedy.

    Examples:
        >>> (current,) = connector_health(client, rows, source=engine)
        >>> current.well, current.last_event_age, current.slot.lag_bytes
        (True, 3.2, 1216)
    """

    status: ConnectorStatus
    slot: ReplicationSlot | None = None
    last_event_age: float | None = None
    well: bool = False
    advice: tuple[str, ...] = ()


def connector_health(
    client: ConnectClient, *connectors: Connector | str, source: Engine | None = None
) -> tuple[ConnectorHealth, ...]:
    """Return the health of connectors in their order, by default of all of the cluster by name. Nothing is changed.

    Args:
        client: The worker.
        *connectors: The connectors or their names.
        source: An engine of their database, for the replication slots.

    Returns:
        `well`, `status`, `slot`, `last_event_age` in seconds and `advice` of each connector.

    Raises:
        UnknownConnector: Connect does not know one, or has no state of it yet.
        SourceNotReady: The source cannot be asked.
        ConnectUnavailable: No worker answered.

    Examples:
        >>> [one.status.name for one in connector_health(client, source=engine) if not one.well]
        []
    """
    if not connectors:
        return tuple(_health(client, status, config, source=source) for config, status in client.overview().values())
    names = [one if isinstance(one, str) else one.name for one in connectors]
    return tuple(_health(client, client.status(name), client.config(name), source=source) for name in names)


def _health(
    client: ConnectClient, status: ConnectorStatus, config: Mapping[str, str], *, source: Engine | None
) -> ConnectorHealth:
    slot, now = None, datetime.now(UTC)
    if source is not None:
        with typed_errors(source), source.connect() as connection:
            slot, now = slot_facts(connection, config.get("slot.name", "")), clock(connection)
    times = [offset.at for offset in committed_offsets(client, status.name)]
    newest = max((at for at in times if at is not None), default=None)
    age = None if newest is None else max(0.0, (now - newest).total_seconds())
    advice = advice_on(status.failure[1], config) if status.failure else ()
    return ConnectorHealth(status, slot, age, well=is_well(status, config), advice=advice)


def committed_offsets(client: ConnectClient, name: str) -> tuple[SourceOffset, ...]:
    """Return how far a connector has come; nothing for one that failed at its start, which does not tell."""
    try:
        return client.offsets(name)
    except UnknownConnector:
        raise
    except ConnectRejected:
        return ()


class ConnectorMetrics(RunnerMetrics):
    """The metrics of a supervisor of connectors, for `Supervisor`. Call `standing` now and then.

    Args:
        name: A name of the supervised cluster, such as its host.

    Examples:
        >>> metrics = ConnectorMetrics()
        >>> with serve_metrics(metrics, port=9464):
        ...     Supervisor(client, metrics=metrics).run(stop)
    """

    families: ClassVar[tuple[Family, ...]] = (
        *RUNNER,
        WELL,
        TASKS,
        LAST_EVENT,
        SLOT_ACTIVE,
        SLOT_LAG,
        SLOT_SIZE,
        SLOT_LOST,
        _RESTARTED,
        GIVEN_UP,
    )

    def __init__(self, name: str = "connectors") -> None:
        super().__init__("connectors", name)

    def restarted_connector(self, connector: str) -> None:
        """Count a restart."""
        self.count(_RESTARTED, connector=connector)

    def supervised(self, connectors: dict[str, bool]) -> None:
        """Note of each connector whether it is given up."""
        for connector in connectors:
            self.count(_RESTARTED, 0, connector=connector)
        self.replace(GIVEN_UP, [({"connector": name}, float(given_up)) for name, given_up in connectors.items()])

    def standing(self, found: Sequence[ConnectorHealth]) -> None:
        """Show connectors as they are now. Others are no longer shown."""
        names = [({"connector": one.status.name}, one) for one in found]
        self.replace(WELL, [(label, float(one.well)) for label, one in names])
        self.replace(TASKS, [(label | {"state": state}, count) for label, one in names
                             for state, count in _states(one).items()])  # fmt: skip
        now = time.time()
        self.replace(LAST_EVENT, [(label, now - one.last_event_age) for label, one in names
                                  if one.last_event_age is not None])  # fmt: skip
        self._slots([(label | {"slot": one.slot.name}, one.slot) for label, one in names if one.slot is not None])

    def _slots(self, slots: Sequence[tuple[dict[str, str], ReplicationSlot]]) -> None:
        self.replace(SLOT_ACTIVE, [(label, float(slot.active)) for label, slot in slots])
        self.replace(SLOT_LOST, [(label, float(slot.wal_status in _ENDANGERED)) for label, slot in slots])
        self.replace(SLOT_LAG, [(label, slot.lag_bytes) for label, slot in slots if slot.lag_bytes is not None])
        self.replace(
            SLOT_SIZE, [(label, slot.retained_bytes) for label, slot in slots if slot.retained_bytes is not None]
        )


def _states(one: ConnectorHealth) -> dict[str, int]:
    states = [task.state for task in one.status.tasks]
    return {state: states.count(state) for state in dict.fromkeys(("RUNNING", "FAILED", *states))}


_LOG = structlog.get_logger(__name__)
# With up to half of each wait left out at random, ten restarts take five minutes: a database that fails over is back.
RESTARTS: Final = Restarts(limit=10, longest=60.0)


@dataclass(slots=True)
class _Watched:
    """What the supervisor remembers of one connector."""

    restarts: int = 0
    due: float | None = None
    running: Since = field(default_factory=Since)
    taskless: Since = field(default_factory=Since)
    given_up: ConnectorFailed | None = None


class Supervisor:
    """Restarts connectors that FAILED. PAUSED and STOPPED ones stay as they are.

    A worker that does not answer is waited for. A connector that was given up is supervised again after a repair, once
    it has run for `healthy_after`.

    Args:
        client: The worker.
        names: The connectors, by default all of the cluster.
        policy: How often in a row a connector is restarted, and after which waits. Up to half of each is left out at
            random: connectors that failed together start at different times.
        healthy_after: How many seconds a connector must run before counting begins again.
        poll: The seconds between two checks.
        clock: Gives seconds.
        chance: Gives numbers between 0 and 1.
        metrics: Counts for Prometheus.

    Examples:
        >>> Supervisor(client, [rows.name], policy=Restarts(limit=20, longest=60.0), healthy_after=300).run(stop)
    """

    def __init__(
        self,
        client: ConnectClient,
        names: Iterable[str] | None = None,
        *,
        policy: Restarts = RESTARTS,
        healthy_after: float = 120.0,
        poll: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        metrics: ConnectorMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._policy, self._healthy_after, self._poll = policy, healthy_after, poll
        self._client = client
        self._names = None if names is None else tuple(names)
        self._clock = clock
        self._chance = chance
        self._watched: dict[str, _Watched] = {}
        self._is_away = False

    @property
    def given_up(self) -> tuple[ConnectorFailed, ...]:
        """The last failures of the connectors that were given up."""
        return tuple(one.given_up for one in self._watched.values() if one.given_up is not None)

    def run(self, stop: threading.Event) -> None:
        """Check connectors repeatedly until `stop` is set, or until all were given up.

        Raises RestartsExhausted at the end if connectors were given up. Raises UnknownConnector for an unknown name.
        """
        while not stop.is_set() and not self._is_hopeless():
            self.look()
            stop.wait(self._poll)
        if self.given_up:
            raise _exhausted(self.given_up)

    def look(self) -> None:
        """Check every connector once, and restart what is due."""
        try:
            overview = self._client.overview()
            self._know(overview)
        except UnknownConnector:
            raise
        except CdcError as error:
            self._went_away(error)
            return
        if self._is_away:
            _LOG.info("worker back")
        self._is_away = False
        for name, one in self._watched.items():
            if name in overview:
                self._step(one, *overview[name])
        if self._metrics is not None:
            self._metrics.supervised({name: one.given_up is not None for name, one in self._watched.items()})

    def _went_away(self, error: CdcError) -> None:
        if not self._is_away:
            _LOG.warning("worker away", cause=error.message, remedy=error.remedy)
        self._is_away = True

    def _is_hopeless(self) -> bool:
        return bool(self._watched) and all(one.given_up is not None for one in self._watched.values())

    def _know(self, there: Collection[str]) -> None:
        """Take up connectors that are new; those asked for by name have to be there at first, and may go later."""
        for name in there if self._names is None else self._names:
            if name not in self._watched:
                if name not in there:
                    self._client.config(name)
                self._watched[name] = _Watched()
        if self._names is None:
            for name in [name for name in self._watched if name not in there]:
                del self._watched[name]

    def _step(self, one: _Watched, config: Mapping[str, str], status: ConnectorStatus) -> None:
        now = self._clock()
        may_idle = may_be_idle(config)
        failure = None if status.state in (PAUSED, STOPPED) else self._failure(one, status, now, may_idle=may_idle)
        if failure is None:
            self._settle(one, status, now, well=is_well(status, config))
        elif one.given_up is not None:
            one.running = Since()
        elif one.restarts >= self._policy.limit:
            self._give_up(one, status, failure)
        elif one.due is None:
            self._schedule(one, status, failure, now)
        elif now >= one.due:
            self._restart(one, status)

    def _failure(self, one: _Watched, status: ConnectorStatus, now: float, *, may_idle: bool) -> ConnectorFailed | None:
        """Return what is wrong: something FAILED, or a connector has run without any task for long."""
        taskless = status.state == RUNNING and not status.tasks and not may_idle
        if one.taskless.seconds(taskless, now) <= TASKLESS_SECONDS:
            return None if taskless else failure_of(status)
        return ConnectorFailed(
            f"connector {status.name!r} runs without a task",
            remedy="restart the connector: the worker lost its request for tasks",
            place=f"{status.name} on worker {status.worker_id}",
        )

    def _settle(self, one: _Watched, status: ConnectorStatus, now: float, *, well: bool) -> None:
        one.due = None
        is_healthy = one.running.seconds(well, now) >= self._healthy_after
        if well and is_healthy and (one.restarts or one.given_up):
            _LOG.info("connector recovered", connector=status.name, restarts=one.restarts)
            one.restarts, one.given_up = 0, None

    def _schedule(self, one: _Watched, status: ConnectorStatus, failure: ConnectorFailed, now: float) -> None:
        wait = self._policy.delay(one.restarts + 1) * (1 + self._chance()) / 2
        one.due, one.running = now + wait, Since()
        _LOG.warning(
            "connector failed",
            connector=status.name,
            cause=failure.message,
            remedy=failure.remedy,
            restart=one.restarts + 1,
            of=self._policy.limit,
            wait_seconds=round(wait, 1),
        )

    def _restart(self, one: _Watched, status: ConnectorStatus) -> None:
        try:
            self._client.restart(status.name, only_failed=status.failure is not None)
        except CdcError as error:
            # It was deleted meanwhile, or the worker went away or rebalances: the next look tells, or tries again.
            _LOG.warning("restart refused", connector=status.name, cause=error.message)
            return
        one.restarts, one.due, one.taskless = one.restarts + 1, None, Since()
        if self._metrics is not None:
            self._metrics.restarted_connector(status.name)
        _LOG.info("connector restarted", connector=status.name, restart=one.restarts)

    def _give_up(self, one: _Watched, status: ConnectorStatus, failure: ConnectorFailed) -> None:
        one.given_up = failure
        _LOG.error(
            "connector given up",
            connector=status.name,
            restarts=one.restarts,
            causes=failure.trace,
            remedy=failure.remedy,
        )


def _exhausted(failures: tuple[ConnectorFailed, ...]) -> RestartsExhausted:
    messages = "; ".join(failure.message for failure in failures)
    remedies = dict.fromkeys(failure.remedy for failure in failures)
    return RestartsExhausted(
        f"given up after the last restart: {messages}",
        remedy=f"{', '.join(remedies)}, then factfold cdc restart --failed, and supervise again",
        failures=failures,
    )
