"""The walk of each comparison of a table with a state: settle, repair what differs, settle again, report by key."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from cdc.comparing.report import ComparisonProgress, OnProgress, StateTable, TableComparison
from cdc.comparing.rows import Key, ordered
from cdc.comparing.settling import Settled

PATIENCE: Final = 120.0
_SHOWN: Final = 20  # differing keys whose columns are named


@dataclasses.dataclass(frozen=True)
class Walk(ABC):
    """The comparison of one table with one state. Each kind of database brings its own queries."""

    table: str
    state: StateTable
    on_progress: OnProgress

    @abstractmethod
    def settle(self, suspects: Sequence[Key]) -> Settled:
        """Look at keys until what they show is certain."""

    @abstractmethod
    def repair(self, settled: Settled) -> str | None:
        """Repair what differs, and return why it may differ still."""

    @abstractmethod
    def columns(self, keys: Sequence[Key]) -> Mapping[Key, tuple[str, ...]]:
        """Return the names of the columns in which some rows differ."""

    def compared(self, report: TableComparison, suspects: Sequence[Key], *, repairs: bool) -> TableComparison:
        """Complete a report of the two tables with the keys that differ."""
        settled = self.settle(suspects)
        if repairs and settled.wrong:
            before, unrepaired = settled, self.repair(settled)
            settled = self.settle(before.wrong)
            repaired = len({*before.wrong} - {*settled.wrong} - {*settled.changing})
            settled.changing += before.changing
            report = dataclasses.replace(report, repaired=repaired, unrepaired=unrepaired if settled.wrong else None)
        differing = self._in_order(settled.differing)
        return dataclasses.replace(
            report,
            source_rows=settled.source_rows or report.source_rows,
            state_rows=settled.state_rows or report.state_rows,
            missing=self._in_order(settled.missing),
            extra=self._in_order(settled.extra),
            differing=differing,
            changing=self._in_order(settled.changing),
            differing_columns=self.columns(differing[:_SHOWN]) if differing else {},
        )

    def tell(self, step: str, rows: int, total: int) -> None:
        """Tell how far the comparison is."""
        self.on_progress(ComparisonProgress(self.table, step, rows, total))

    def _in_order(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        kinds = [self.state.forms[name].kind for name in self.state.key]
        return tuple(sorted(keys, key=lambda key: ordered(key, kinds)))
