"""Connectors that fail are started again, with longer and longer waits between, and given up loudly.

Every failure is treated alike, also one that no restart cures, such as a lost slot. An operator may cure it meanwhile,
and a restart in vain costs nothing. The log has the cause and the remedy each time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from cdc.connect.status import PAUSED, RUNNING, STOPPED, ConnectorInfo, ConnectorStatus, is_well, may_be_idle
from cdc.errors import CdcError, ConnectorFailed, RestartsExhausted, UnknownConnector
from cdc.operating.watch import TASKLESS_SECONDS, failure_of
from eventstore.restarts import Restarts

if TYPE_CHECKING:
    from cdc.connect.client import ConnectClient
    from cdc.operating.connector_health import ConnectorMetrics

_LOG = structlog.get_logger(__name__)
# With up to half of each wait left out at random, ten restarts take five minutes: a database that fails over is back.
RESTARTS: Final = Restarts(limit=10, longest=60.0)


@dataclass(slots=True)
class _Watched:
    """What the supervisor remembers of one connector."""

    restarts: int = 0
    due: float | None = None
    running_since: float | None = None
    taskless_since: float | None = None
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
                    self._client.info(name)
                self._watched[name] = _Watched()
        if self._names is None:
            for name in [name for name in self._watched if name not in there]:
                del self._watched[name]

    def _step(self, one: _Watched, info: ConnectorInfo, status: ConnectorStatus) -> None:
        now = self._clock()
        may_idle = may_be_idle(info.config)
        failure = None if status.state in (PAUSED, STOPPED) else self._failure(one, status, now, may_idle=may_idle)
        if failure is None:
            self._settle(one, status, now, well=is_well(status, info.config))
        elif one.given_up is not None:
            one.running_since = None
        elif one.restarts >= self._policy.limit:
            self._give_up(one, status, failure)
        elif one.due is None:
            self._schedule(one, status, failure, now)
        elif now >= one.due:
            self._restart(one, status)

    def _failure(self, one: _Watched, status: ConnectorStatus, now: float, *, may_idle: bool) -> ConnectorFailed | None:
        """Return what is wrong: something FAILED, or a connector has run without any task for long."""
        if status.state != RUNNING or status.tasks or may_idle:
            one.taskless_since = None
            return failure_of(status)
        if one.taskless_since is None:
            one.taskless_since = now
        if now - one.taskless_since <= TASKLESS_SECONDS:
            return None
        return ConnectorFailed(
            f"connector {status.name!r} runs without a task",
            remedy="restart the connector: the worker lost its request for tasks",
            place=f"{status.name} on worker {status.worker_id}",
        )

    def _settle(self, one: _Watched, status: ConnectorStatus, now: float, *, well: bool) -> None:
        one.due = None
        if not well:
            one.running_since = None
            return
        if one.running_since is None:
            one.running_since = now
        if now - one.running_since >= self._healthy_after and (one.restarts or one.given_up):
            _LOG.info("connector recovered", connector=status.name, restarts=one.restarts)
            one.restarts, one.given_up = 0, None

    def _schedule(self, one: _Watched, status: ConnectorStatus, failure: ConnectorFailed, now: float) -> None:
        wait = self._policy.delay(one.restarts + 1) * (1 + self._chance()) / 2
        one.due, one.running_since = now + wait, None
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
        one.restarts, one.due, one.taskless_since = one.restarts + 1, None, None
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
