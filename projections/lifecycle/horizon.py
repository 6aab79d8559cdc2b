"""Deleted rows let go of by the runner itself, some between two batches, once they were deleted long enough ago."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from projections.stores.runs import Run

if TYPE_CHECKING:
    from projections.stores.port import TableStore

_MOST_SECONDS: Final = 0.1  # at a time: a batch on a quiet topic takes two tenths
# Of a table, in a transaction: so few are looked up by their keys; of 5,000 PostgreSQL reads a state of a million rows.
STEP_ROWS: Final = 1_000
_LOOK_SECONDS: Final = 60.0  # between two looks for rows that are due


class Horizon:
    """The deleted rows of one run; ``keep`` is how long they are known to be deleted."""

    def __init__(self, store: TableStore[Any], run: Run, layout: Any, *, keep: timedelta) -> None:
        self._store = store
        self._run = run
        self._layout = layout
        self._keep = keep.total_seconds()
        self._next = 0.0

    def let_go(self, *, to_the_end: bool = False) -> Mapping[str, int]:
        """Let go of some, or `to_the_end`, where it is time to look for them; returns how many deletions, by table."""
        settled: Counter[str] = Counter()
        until = time.monotonic() + (math.inf if to_the_end else _MOST_SECONDS)
        while self._next <= time.monotonic() < until:
            counts = self._step()
            settled.update(counts)
            if all(count < STEP_ROWS for count in counts.values()):
                self._next = time.monotonic() + _LOOK_SECONDS
        return settled

    def _step(self) -> Mapping[str, int]:
        before = int(time.time() - self._keep)
        return self._store.let_go(self._run, self._layout, before=before, most=STEP_ROWS)
