"""What one source says, read at most once in a moment by one thread; or why it says nothing, and what to type.

Addresses of the console.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

import structlog

from eventstore.delivery.source import masked_traceback
from eventstore.errors import FactfoldError
from eventstore.extras import explained

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
