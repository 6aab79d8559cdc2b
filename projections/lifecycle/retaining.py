"""Rows forgotten by the runner itself, some after each batch, as the database's clock goes on."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from projections.stores.runs import Run

if TYPE_CHECKING:
    from projections.declaring.group import ProjectionGroup
    from projections.stores.port import TableStore

_LOOK_SECONDS: Final = 10.0  # so many more seconds of rows stay
_MOST_SECONDS: Final = 0.1  # at a time: a batch on a quiet topic takes two tenths
STEP_ROWS: Final = 1_000  # of a table, in a transaction


class Retaining:
    """The rows of one serving run whose streams promise how late events may be."""

    def __init__(self, store: TableStore[Any], run: Run, layout: Any, group: ProjectionGroup) -> None:
        assert group.retention is not None  # noqa: S101 - asked before
        self._store, self._behind = store, group.retention.behind
        self._run, self._layout = run, layout
        self._next, self._left = 0.0, True

    def forget(self, at: int | None, *, to_the_end: bool = False) -> Mapping[str, int]:
        """Forget some rows, where it is time to look or some are left, or `to_the_end`; returns how many, by table.

        The floor rises to a time of `Moments`. Of what comes later, the promises say how old it may be.
        """
        upto = None
        if to_the_end or self._next <= time.monotonic():
            self._next, self._left = time.monotonic() + _LOOK_SECONDS, True
            upto = None if at is None else at - self._behind
        return self._some(upto, math.inf if to_the_end else _MOST_SECONDS) if self._left else {}

    def _some(self, upto: int | None, seconds: float) -> Mapping[str, int]:
        forgotten: Counter[str] = Counter()
        until = time.monotonic() + seconds
        while self._left and (not forgotten or time.monotonic() < until):
            counts = self._store.retain(self._run, self._layout, upto=upto, most=STEP_ROWS)
            forgotten.update(counts)
            self._left, upto = any(count == STEP_ROWS for count in counts.values()), None
        return forgotten
