"""Metrics of a router of branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from projections.branching.status import BranchesStatus

RECORDS: Final = Family(
    "factfold_branches_records_total", Kind.COUNTER,
    "Records ever written to a branch or its dead-letter topic, repeated ones included.", ("topic", "branch"),
)  # fmt: skip
LAG: Final = Family(
    "factfold_branches_lag_offsets", Kind.GAUGE,
    "Offsets of the source topic after the last finished batch: in real-time mode it moves once a batch.", ("topic",),
)  # fmt: skip
RELOADS: Final = Family(
    "factfold_branches_reloads_total", Kind.COUNTER, "Starts of the query to learn new schemas.", ("topic",)
)


class RouterMetrics(RunnerMetrics):
    """The metrics of one router, for `open_router`.

    Args:
        topic: The topic that is routed.

    Examples:
        >>> metrics = RouterMetrics("payment")
        >>> look = lambda: metrics.standing(branches_status(settings, payment_branches, checkpoints=folder))
        >>> with serve_metrics(metrics, port=9464), refreshing(metrics, look):
        ...     with open_router(settings, payment_branches, checkpoints=folder, jars=jars, metrics=metrics) as router:
        ...         router.run(stop=stop)
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, RECORDS, LAG, RELOADS)

    def __init__(self, topic: str) -> None:
        super().__init__("branches", topic, topic=topic)

    def reloaded(self) -> None:
        """Count a start for new schemas."""
        self.count(RELOADS)

    def standing(self, status: BranchesStatus) -> None:
        """Note how far the router has come and what its branches hold."""
        if status.lag is not None:
            self.set(LAG, status.lag)
        for branch, records in status.counts.items():
            self.raise_to(RECORDS, records, branch=branch)
