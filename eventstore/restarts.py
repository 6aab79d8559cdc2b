"""Outwaiting what passes by itself: one policy for subscriptions, projection runners and routers.

A database or a broker that restarts, or a leader that moves, ends an attempt. The same is tried again after a pause
that is doubled each time, and given up after too many failures in a row.
"""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Final, Protocol, TypeVar

import structlog

from eventstore.errors import BrokerRefused, BrokerUnreachable, FactfoldError, RegistryUnreachable, StoreUnavailable

T = TypeVar("T")

PASSING: Final = (BrokerRefused, BrokerUnreachable, RegistryUnreachable, StoreUnavailable)
# So long an open subscriber waits for its broker or its database before the attempt counts as failed.
PATIENCE_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0  # an attempt that lived this long has recovered, even where nothing came

_ADDRESS: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})\b")
_ANSWER_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.5
_MOST_DOUBLINGS: Final = 30  # more fit no float in the end

log = structlog.get_logger()


@dataclass(frozen=True)
class Restarts:
    """How often in a row a failed run is started again, and after which pauses.

    Attributes:
        limit: The number of starts in a row.
        first: The first pause in seconds. Each further one is twice as long.
        longest: The longest pause in seconds.

    Examples:
        >>> run_subscription(review, stop=stop, engine=engine, restarts=Restarts(limit=3, first=5.0))
    """

    limit: int = 8
    first: float = 1.0
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.longest, math.ldexp(self.first, min(failures - 1, _MOST_DOUBLINGS)))


def passes(error: FactfoldError) -> bool:
    """Say whether a failure may be over when the same is tried again."""
    return isinstance(error, PASSING)


class RestartCount(Protocol):
    """Counts starts after failures, as the metrics of a runner do."""

    def restarted(self, failures: int) -> None:
        """Count a start after so many failures in a row."""

    def recovered(self, failures: int) -> None:
        """Note that what failed so often works again."""


class Outwaiting:
    """Tries again what fails: `failures` counts those in a row, `restarts` all of them.

    `what` fails and `place` says where; `gave_up` is the class of the error after too many in a row, by
    default the last one is raised. `passes` decides whether an error passes, and `counted_by` counts for others.
    An attempt that lasted longer than `healthy_after` seconds counts as recovered, though it failed in the end.
    """

    def __init__(
        self,
        policy: Restarts,
        *,
        what: str,
        place: str,
        gave_up: type[FactfoldError] | None = None,
        goes_on: str = "it goes on where it stood",
        passes: Callable[[FactfoldError], bool] = passes,
        counted_by: RestartCount | None = None,
        healthy_after: float = HEALTHY_SECONDS,
    ) -> None:
        self._policy = policy
        self._healthy_after = healthy_after
        self._what, self._place, self._gave_up, self._goes_on = what, place, gave_up, goes_on
        self._passes = passes
        self._counted_by = counted_by
        self.failures = 0
        self.restarts = 0

    def once(self, work: Callable[[], T], *, stop: Event) -> T | None:
        """Do something once, over failures that pass, and return its result; None if it is stopped before."""
        while not stop.is_set():
            with self.over(stop):
                return work()
        return None

    @contextmanager
    def over(self, stop: Event) -> Iterator[None]:
        """Swallow a failure that passes, after the pause that the policy has for it; others are raised."""
        began = time.monotonic()
        try:
            yield
        except FactfoldError as error:
            if not self._passes(error):
                raise
            lasted = time.monotonic() - began
            while not stop.wait(self.failed(error, lasted=lasted)) and not _answers(error, stop):
                lasted = 0.0

    def failed(self, error: FactfoldError, *, lasted: float = 0.0) -> float:
        """Count the failure of an attempt that lasted so many seconds; returns the seconds to wait.

        Raises the error of giving up after too many in a row.
        """
        if lasted > self._healthy_after:
            self.recovered()
        self.failures += 1
        if self.failures > self._policy.limit:
            if self._gave_up is None:
                raise error
            raise self._gave_up(
                f"the {self._what} failed {self.failures} times in a row, at last: {error.message}",
                remedy=f"{error.remedy}. Then start it again: {self._goes_on}",
                place=self._place,
                code="gave-up",
            ) from error
        self.restarts += 1
        if self._counted_by is not None:
            self._counted_by.restarted(self.failures)
        delay = self._policy.delay(self.failures)
        cause, remedy = error.message, error.remedy
        log.warning(f"{self._what} failed", place=self._place, cause=cause, remedy=remedy, restart_in=delay)
        return delay

    def recovered(self) -> None:
        """Reset the count."""
        before, self.failures = self.failures, 0
        if self._counted_by is not None:
            self._counted_by.recovered(before)

    def passing_on(
        self, *listeners: Callable[[T], object] | None, works: Callable[[T], bool] = lambda report: True
    ) -> Callable[[T], None]:
        """Return what a runner calls with each report: the runner has recovered if it works, and listeners hear it."""

        def pass_on(report: T) -> None:
            if works(report):
                self.recovered()
            for listener in listeners:
                if listener is not None:
                    listener(report)

        return pass_on


def _answers(error: FactfoldError, stop: Event) -> bool:
    """Whether a broker that was away takes connections again, waited for as long as a call to it would wait.

    The call itself could not be stopped: a signal is handled after it.
    """
    addresses = _ADDRESS.findall(error.place or "") if isinstance(error, BrokerUnreachable) else []
    until = time.monotonic() + _ANSWER_SECONDS
    while addresses and not any(_takes_connections(host.strip("[]"), int(port)) for host, port in addresses):
        if time.monotonic() > until:
            return False
        if stop.wait(_LOOK_SECONDS):
            break
    return True


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_LOOK_SECONDS).close()
    except (OSError, ValueError):  # ValueError: of a name that no host can have
        return False
    return True
