"""Deleted rows let go of by the runner itself, some between two batches, once they were deleted long enough ago."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from projections.tablestore.runs import Run

if TYPE_CHECKING:
    from projections.tablestore.port import TableStore

_LOOK_SECONDS: Final = 60.0  # between two looks that find less than a step
STEP_ROWS: Final = 5_000  # of a table: some tens of milliseconds of a database


class Horizon:
    """The deleted rows of one run; ``keep`` is how long they are known to be deleted."""

    def __init__(self, store: TableStore[Any], run: Run, layout: Any, *, keep: timedelta) -> None:
        self._store = store
        self._run = run
        self._layout = layout
        self._keep = keep.total_seconds()
        self._next = 0.0

    def step(self) -> Mapping[str, int]:
        """Let go of some, where it is time to look for them; returns how many deletions were settled, by table."""
        if time.monotonic() < self._next:
            return {}
        before = int(time.time() - self._keep)
        settled = self._store.let_go(self._run, self._layout, before=before, most=STEP_ROWS)
        if all(count < STEP_ROWS for count in settled.values()):
            self._next = time.monotonic() + _LOOK_SECONDS
        return settled
