"""Results of commands that end, as files for Prometheus: verify and compare."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics import write_metrics
from eventstore.metrics.families import Family, Metrics, gauge

if TYPE_CHECKING:
    from cdc.comparing.report import TableComparison
    from projections import ViewVerdict


VIEW_EQUAL: Final = gauge(
    "verify_is_equal", "1 if the last verification found a view equal to its recomputation, or 0.", "group", "view"
)
VIEW_ROWS: Final = gauge("verify_rows", "Rows of a view that were verified.", "group", "view")
VERIFIED: Final = gauge("verify_timestamp_seconds", "When the last verification of a group ended.", "group")
VERIFY_SECONDS: Final = gauge("verify_duration_seconds", "Seconds that it took.", "group")
TABLE_EQUAL: Final = gauge(
    "compare_is_equal", "1 if the last comparison found a captured table equal to its state, or 0.", "table", "state"
)
TABLE_KEYS: Final = gauge(
    "compare_differing_keys", "Keys that are missing, extra or different, after a repair if there was one.",
    "table", "state",
)  # fmt: skip
COMPARED: Final = gauge("compare_timestamp_seconds", "When the last comparison of a table ended.", "table", "state")


class VerifyMetrics(Metrics):
    """The result of a verification."""

    families: ClassVar[tuple[Family, ...]] = (VIEW_EQUAL, VIEW_ROWS, VERIFIED, VERIFY_SECONDS)

    def verified(self, group: str, verdicts: Mapping[str, ViewVerdict], *, seconds: float) -> None:
        """Show the verdict on each view."""
        for view, verdict in verdicts.items():
            self.set(VIEW_EQUAL, float(verdict.equal), group=group, view=view)
            self.set(VIEW_ROWS, verdict.rows, group=group, view=view)
        self.set(VERIFIED, time.time(), group=group)
        self.set(VERIFY_SECONDS, seconds, group=group)


class CompareMetrics(Metrics):
    """The result of a comparison with the source."""

    families: ClassVar[tuple[Family, ...]] = (TABLE_EQUAL, TABLE_KEYS, COMPARED)

    def compared(self, comparisons: Sequence[TableComparison]) -> None:
        """Show the result of each table that a state is made from."""
        for one in comparisons:
            if one.is_compared:
                labels = {"table": one.table, "state": one.state}
                differing = len({*one.missing, *one.extra, *one.differing, *one.changing})
                self.set(TABLE_EQUAL, float(one.equal), **labels)
                self.set(TABLE_KEYS, differing, **labels)
                self.set(COMPARED, time.time(), **labels)


def write_verified(path: str, group: str, verdicts: Mapping[str, ViewVerdict], *, seconds: float) -> None:
    """Write the result of a verification."""
    metrics = VerifyMetrics()
    metrics.verified(group, verdicts, seconds=seconds)
    write_metrics(metrics, path)


def write_compared(path: str, comparisons: Sequence[TableComparison]) -> None:
    """Write the result of a comparison."""
    metrics = CompareMetrics()
    metrics.compared(comparisons)
    write_metrics(metrics, path)
