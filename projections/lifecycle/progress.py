"""The progress of a rebuild while it runs: the current step, data records done and to do, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

_LOOK_SECONDS: Final = 0.5  # between two looks at Spark's counts: a bar that moves, at no cost


@dataclass(frozen=True)
class RebuildProgress:
    """One moment of a rebuild.

    Attributes:
        step: The current step.
        records: The records that are read. Offsets without a record count once their table is loaded.
        total: The records to read.
        before: Those of ``records`` that an earlier, killed process read.
        seconds: The time of this process.

    Examples:
        >>> report = rebuild(environment, shop_views, on_progress=lambda now: print(now.step, now.records, now.total))
    """

    step: str
    records: int
    total: int
    before: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        """The records that this process read, divided by its time."""
        return (self.records - self.before) / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The time until all records are read, at the rate so far. None before the first record."""
        rate = self.records_per_second
        return (self.total - self.records) / rate if rate else None


OnProgress = Callable[[RebuildProgress], None]


class ProgressMeter:
    """Tells an observer of every step as it begins, and of the records while tables are loaded."""

    def __init__(self, observer: OnProgress) -> None:
        self._observer = observer
        self._begun = time.perf_counter()
        self._count: Callable[[], int] = lambda: 0
        self._step, self._total, self._before = "plan", 0, 0
        self.seconds: dict[str, float] = {}

    def expect(self, total: int, *, before: int) -> None:
        """Set how many records there are, and how many were done by an earlier process."""
        self._total, self._before = total, before
        self._count = lambda: before

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Tell that a step begins, and add the time of the block to it."""
        self._step = name
        self._observer(self._now())
        begun = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun

    @contextmanager
    def watched(self, count: Callable[[], int]) -> Iterator[None]:
        """Tell again and again, while the block runs, how many records ``count`` says are done."""
        done = threading.Event()
        self._count = count
        thread = threading.Thread(target=self._watch, args=(done,), name="rebuild progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            reached = count()
            self._count = lambda: reached

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(_LOOK_SECONDS):
            self._observer(self._now())

    def _now(self) -> RebuildProgress:
        seconds = time.perf_counter() - self._begun
        return RebuildProgress(self._step, self._count(), self._total, self._before, seconds)


def counted_once(by_table: Mapping[str, int], topics: Mapping[str, str]) -> int:
    """Records of topics out of records of tables: one that several tables read is done when all of them have it."""
    least: dict[str, int] = {}
    for table, records in by_table.items():
        least[topics[table]] = min(records, least.get(topics[table], records))
    return sum(least.values())
