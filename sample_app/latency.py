"""How long an accepted command takes to its topic, its view and its reaction, seen from outside."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import sqlalchemy as sa

from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.consumer import RangeReader
from sample_app.road import Road

_LOOK_SECONDS = 0.02


class Stopwatch:
    """Times many things by name, each from its beginning to its first reported end."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def begin(self, name: str) -> None:
        """The command was accepted just now."""
        self._begun[name] = time.perf_counter()

    def end(self, name: str) -> None:
        """The effect is there; a second end is passed over.

        One may come before its beginning: another thread saw the effect before this one heard that it was accepted.
        """
        self._ended.setdefault(name, time.perf_counter())

    @property
    def waiting(self) -> list[str]:
        """What has begun and not ended."""
        return [name for name in list(self._begun) if name not in self._ended]

    def percentiles(self) -> Mapping[str, float]:
        """Milliseconds: median and 99th percentile of the ``n`` that ended."""
        both = self._begun.keys() & self._ended.keys()
        waited = [max(0.0, self._ended[name] - self._begun[name]) * 1000 for name in both]
        cuts = statistics.quantiles(waited, n=100, method="inclusive")
        return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "n": len(waited)}


class LatencyWatch:
    """Three stopwatches: an order's event in its topic, its row in the view, a payment's call of the fraud handler."""

    def __init__(self, road: Road, *, topic: str, view: str, key: str) -> None:
        self._road = road
        self._topic, self._view, self._key = topic, sa.table(view, sa.column(key)), key
        self.topic, self.view, self.reaction = Stopwatch(), Stopwatch(), Stopwatch()
        self._ends: dict[int, int] = {}
        self._stop = threading.Event()

    def accepted(self, order_id: str) -> None:
        """A command for a new order has just been accepted."""
        self.topic.begin(order_id)
        self.view.begin(order_id)

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
        """Wait until everything accepted was seen everywhere, at most ``deadline`` seconds."""
        until = time.monotonic() + deadline
        while any(watch.waiting for watch in self._watches().values()):
            if time.monotonic() > until:
                missing = {name: watch.waiting[:3] for name, watch in self._watches().items() if watch.waiting}
                raise TimeoutError(f"not seen after {deadline} s: {missing}")
            time.sleep(_LOOK_SECONDS)

    def percentiles(self) -> dict[str, Mapping[str, float]]:
        """Milliseconds from the accepted command, to topic, view and reaction."""
        return {name: watch.percentiles() for name, watch in self._watches().items()}

    def _watches(self) -> dict[str, Stopwatch]:
        return {"topic": self.topic, "view": self.view, "reaction": self.reaction}

    def _look_at_topic(self) -> None:
        with RangeReader(self._road.settings) as reader:
            reader.seek({self._topic: self._ends})
            while not self._stop.is_set():
                for record in reader.poll(_LOOK_SECONDS / 2):
                    self.topic.end((record.key or b"").decode().rpartition("@")[0].partition("-")[2])

    def _look_at_view(self) -> None:
        engine = sa.create_engine(self._road.views_url, isolation_level="AUTOCOMMIT")
        column = self._view.c[self._key]
        with engine.connect() as connection:
            while not self._stop.wait(_LOOK_SECONDS):
                if waiting := self.view.waiting:
                    for order in connection.scalars(sa.select(column).where(column.in_(waiting))):
                        self.view.end(order)
        engine.dispose()
