"""How figures have moved since the console runs: the last samples of each, in memory."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from threading import Lock
from typing import Final, Literal

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
