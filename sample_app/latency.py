"""How long an accepted command takes to its topic and to its view, seen from outside: a consumer and a reader."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.consumer import RangeReader
from sample_app.road import Road

_LOOK_SECONDS = 0.01


class LatencyWatch:
    """Collects, for each order, when its command was accepted and when topic and view first showed it."""

    def __init__(self, road: Road, *, topic: str, view: str, key: str) -> None:
        self._road = road
        self._topic, self._view, self._key = topic, sa.table(view, sa.column(key)), key
        self._accepted: dict[str, float] = {}
        self._seen: dict[str, dict[str, float]] = {"topic": {}, "view": {}}
        self._ends: dict[int, int] = {}
        self._stop = threading.Event()

    def accepted(self, order_id: str) -> None:
        """A command for a new order has just been accepted."""
        self._accepted[order_id] = time.perf_counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at topic and view in threads of their own for as long as the block lasts."""
        threads = [threading.Thread(target=look, daemon=True) for look in (self._look_at_topic, self._look_at_view)]
        with OffsetReader(self._road.settings) as offsets:
            self._ends = offsets.end_offsets([self._topic])[self._topic]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def wait(self, *, deadline: float) -> None:
        """Wait until everything accepted was seen on both sides, at most ``deadline`` seconds."""
        until = time.monotonic() + deadline
        while any(len(seen) < len(self._accepted) for seen in self._seen.values()):
            if time.monotonic() > until:
                missing = {side: len(self._accepted) - len(seen) for side, seen in self._seen.items()}
                raise TimeoutError(f"orders not seen after {deadline} s: {missing}")
            time.sleep(_LOOK_SECONDS)

    def percentiles(self) -> dict[str, dict[str, float]]:
        """Milliseconds from the accepted command: median and 99th percentile, to topic and to view."""
        return {side: self._percentiles(side) for side in self._seen}

    def _percentiles(self, side: str) -> dict[str, float]:
        waited = [(self._seen[side][order] - begun) * 1000 for order, begun in self._accepted.items()]
        cuts = statistics.quantiles(waited, n=100, method="inclusive")
        return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "n": len(waited)}

    def _look_at_topic(self) -> None:
        with RangeReader(self._road.settings) as reader:
            reader.seek(self._topic, self._ends)
            while not self._stop.is_set():
                for record in reader.poll(_LOOK_SECONDS / 2):
                    order = (record.key or b"").decode().rpartition("@")[0].partition("-")[2]
                    self._seen["topic"].setdefault(order, time.perf_counter())

    def _look_at_view(self) -> None:
        engine = sa.create_engine(self._road.views_url, isolation_level="AUTOCOMMIT")
        column = self._view.c[self._key]
        with engine.connect() as connection:
            while not self._stop.wait(_LOOK_SECONDS):
                pending = [o for o in list(self._accepted) if o not in self._seen["view"]]
                if pending:
                    for order in connection.scalars(sa.select(column).where(column.in_(pending))):
                        self._seen["view"].setdefault(order, time.perf_counter())
        engine.dispose()
