"""What one source says, read at most once in a moment by one thread; or why it says nothing, and what to type.

Addresses of the console.

How figures have moved since the console runs: the last samples of each, in memory.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final, Generic, Literal, TypeVar

import structlog

from eventstore.delivery.source import masked_traceback
from eventstore.errors import FactfoldError
from eventstore.extras import explained

Direction = Literal["rising", "falling", "steady"]

_SAMPLES: Final = 240
_SERIES: Final = 2_000
_APART: Final = 5.0  # seconds: 240 samples are twenty minutes, or forty while no page is open
_JUDGED: Final = 60  # samples that say where a figure moves
_RECENT: Final = 5


@dataclass(frozen=True, slots=True)
class Trend:
    """The samples of a figure, the oldest first, the time of each, and where it moves."""

    samples: tuple[float, ...] = ()
    direction: Direction = "steady"
    times: tuple[datetime, ...] = ()

    def per_second(self) -> Trend:
        """Return how fast a figure that only grows has grown; a fall is a new count, and no rate."""
        pairs = list(pairwise(zip(self.times, self.samples, strict=True)))
        rates = tuple(max(0.0, (b - a) / max(1e-3, (at - since).total_seconds())) for (since, a), (at, b) in pairs)
        return Trend(rates, direction_of(rates[-_JUDGED:]), self.times[1:])


class Trends:
    """Samples by the name of a figure; a sample that follows too soon takes the place of the last one."""

    def __init__(self) -> None:
        self._series: OrderedDict[str, deque[tuple[float, datetime, float]]] = OrderedDict()
        self._lock = Lock()

    def note(self, name: str, value: float | None) -> None:
        """Add a sample."""
        if value is None:
            return
        with self._lock:
            series = self._series.setdefault(name, deque(maxlen=_SAMPLES))
            now = time.monotonic()
            if len(series) > 1 and now - series[-2][0] < _APART:
                series.pop()
            series.append((now, datetime.now(UTC), value))
            self._series.move_to_end(name)
            while len(self._series) > _SERIES:
                self._series.popitem(last=False)

    def of(self, name: str) -> Trend:
        """Return the trend of a figure; an empty one if it was never seen."""
        with self._lock:
            series = tuple(self._series.get(name, ()))
        samples = tuple(value for *_, value in series)
        return Trend(samples, direction_of(samples[-_JUDGED:]), tuple(at for _, at, _ in series))


def direction_of(samples: tuple[float, ...]) -> Direction:
    """Compare the newest samples with those right before, and with all before: where these disagree, nothing is said.

    Nor is it where the last sample goes back, as the end of the drawn line shows.

    A tenth and one unit more is a move.
    """
    if len(samples) < 3:
        return "steady"
    newest, before = samples[-_RECENT:], samples[:-_RECENT] or samples[:1]
    moves = {_move(newest, before[-_RECENT:]), _move(newest, before)}
    back = {_move(samples[-1:], newest)} - moves - {"steady"}
    return moves.pop() if len(moves) == 1 and not back else "steady"


def _move(newest: Sequence[float], before: Sequence[float]) -> Direction:
    now, then = sum(newest) / len(newest), sum(before) / len(before)
    if abs(now - then) <= max(1.0, 0.1 * then):
        return "steady"
    return "rising" if now > then else "falling"


T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a part of a page is empty or wrong, and the command or the setting that mends it."""

    cause: str
    remedy: str
    place: str | None = None

    @staticmethod
    def of(error: BaseException) -> Problem:
        """Say what an error says; of one without a remedy only its kind, since its words may hold secrets."""
        error = explained(error) if isinstance(error, ImportError) else error
        if isinstance(error, FactfoldError):
            return Problem(error.message, error.remedy, error.place)
        return Problem(f"reading failed: {type(error).__name__}", "read the log of factfold console")


NOT_YET: Final = Problem("the source has not answered yet", "wait: the page asks again")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A value with the time of its reading, or a problem; both if a later reading failed."""

    value: T | None = None
    problem: Problem | None = None
    read_at: datetime | None = None


class Reader(Generic[T]):
    """Reads one part in a pool of threads, one reading at a time, and again after `every` seconds."""

    def __init__(self, read: Callable[[], T], pool: Executor, *, every: float) -> None:
        self._read, self._pool, self._every = read, pool, every
        self._lock = Lock()
        self._running: Future[None] | None = None
        self._part: Part[T] = Part(problem=NOT_YET)
        self._due = 0.0

    def start(self) -> Future[None] | None:
        """Begin a reading if one is due; return the one that runs."""
        with self._lock:
            if self._running is None and time.monotonic() >= self._due:
                self._running = self._pool.submit(self._run)
            return self._running

    def part(self, *, deadline: float) -> Part[T]:
        """Return the newest reading; waits for the one that runs until a time of the monotonic clock."""
        if (running := self.start()) is not None:
            wait([running], timeout=max(0.0, deadline - time.monotonic()))
        return self._part

    def _run(self) -> None:
        try:
            part = Part(self._read(), None, datetime.now(UTC))
        except Exception as error:
            if not isinstance(error, FactfoldError):
                _log.warning("console.reading_failed", traceback=masked_traceback(error))
            part = Part(self._part.value, Problem.of(error), self._part.read_at)
        with self._lock:
            self._part, self._running, self._due = part, None, time.monotonic() + self._every


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Addresses, as the settings file, the environment or options give them; None for what is not configured."""

    store_url: str | None = None
    store_schema: str | None = None
    views_url: str | None = None
    connect_url: str | None = None
    source_url: str | None = None
    inbox_url: str | None = None
    checkpoints: Path | None = None
    kafka: bool = False
