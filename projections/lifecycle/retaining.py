"""Rows forgotten by the runner itself, some between two batches, as the database's clock goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from projections.logs.port import OpenLog
from projections.logs.ranges import reached
from projections.stores import finals
from projections.stores.runs import Progress, Run

if TYPE_CHECKING:
    from projections.declaring.group import ProjectionGroup
    from projections.stores.port import TableStore

_LOOK_SECONDS: Final = 10.0  # so many more seconds of rows stay
_MOST_SECONDS: Final = 0.1  # at a time: a batch on a quiet topic takes two tenths
STEP_ROWS: Final = 1_000  # of a table, in a transaction


class Retaining:
    """The rows of one serving run whose streams promise how late events may be."""

    def __init__(self, store: TableStore[Any], log: OpenLog, run: Run, layout: Any, group: ProjectionGroup) -> None:
        self._store, self._log = store, log
        self._run, self._layout, self._group = run, layout, group
        self._next, self._left = 0.0, True

    def forget(self, progress: Progress) -> Mapping[str, int]:
        """Forget some rows, where it is time to look or some are left; returns how many, by table.

        The floor rises where the run has applied all that is in the log. The clock is read before the log's ends: of
        what comes behind them, the promises say how old it may be.
        """
        upto = None
        if self._next <= time.monotonic():
            self._next, self._left = time.monotonic() + _LOOK_SECONDS, True
            upto = self._floor(progress)
        return self._some(upto) if self._left else {}

    def _floor(self, progress: Progress) -> int | None:
        assert self._store.outbox is not None and self._group.retention is not None  # noqa: PT018, S101 - asked before
        with self._store.outbox.looking() as connection:
            at = finals.now(connection)
        if not reached(progress, self._log.end_offsets(list(self._group.inputs))):
            return None
        return at - self._group.retention.behind

    def _some(self, upto: int | None) -> Mapping[str, int]:
        forgotten: Counter[str] = Counter()
        until = time.monotonic() + _MOST_SECONDS
        while self._left and (not forgotten or time.monotonic() < until):
            counts = self._store.retain(self._run, self._layout, upto=upto, most=STEP_ROWS)
            forgotten.update(counts)
            self._left, upto = any(count == STEP_ROWS for count in counts.values()), None
        return forgotten
