"""Metrics of the runner of a projection group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics
from projections.lifecycle.lag import RunLag

if TYPE_CHECKING:
    from projections.spark.live.incremental import BatchReport

# A quiet batch takes a fifth of a second, the target is two, and beyond a minute something is wrong.
_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def _counter(name: str, help: str, *labels: str) -> Family:
    return Family(f"factfold_projection_{name}_total", Kind.COUNTER, help, ("group", *labels))


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(f"factfold_projection_{name}", Kind.GAUGE, help, ("group", *labels))


BATCHES: Final = _counter("batches", "Batches applied.")
# By the names that the report of a batch has for them.
COUNTS: Final = {
    "records": _counter("records", "Offsets of applied batches."),
    "staged": _counter("staged_rows", "Rows of tables that batches brought."),
    "affected": _counter("affected_keys", "View keys that batches reached."),
    "upserts": _counter("upserts", "Rows written to views."),
    "retractions": _counter("retractions", "Rows retracted from views."),
}
STEPS: Final = _counter("step_seconds", "Seconds spent in each step of a batch.", "step")
BAD: Final = _counter("bad_records", "Records set aside, by what is wrong with them.", "kind")
SETTLED: Final = _counter("deletions_settled", "Deleted rows that left the state at the horizon.", "table")
FORGOTTEN: Final = _counter("rows_forgotten", "Rows forgotten by a stream's retain.", "table")
SECONDS: Final = Family(
    "factfold_projection_batch_seconds", Kind.HISTOGRAM, "Seconds of a batch, from reading to its commit.", ("group",),
    _BOUNDS,
)  # fmt: skip
SIZE: Final = _gauge("batch_size", "Records that the next batch may have.")
LAG_OFFSETS: Final = _gauge("lag_offsets", "Offsets of a topic that wait. Markers of transactions count too.", "topic")
LAG_SECONDS: Final = _gauge("lag_seconds", "Seconds since the oldest waiting offset was known, 0 if none waits.")
OUTBOX: Final = _gauge("outbox_rows", "Records of view topics that are not published yet.", "topic")


class RunMetrics(RunnerMetrics):
    """The metrics of one group's runner, from any thread, for `Follower` or `open_runner`.

    Args:
        group: The group's name.

    Examples:
        >>> metrics = RunMetrics(group.name)
        >>> with serve_metrics(metrics, port=9464):
        ...     Follower(environment=environment, group=group, metrics=metrics).run(stop=stop)
    """

    families: ClassVar[tuple[Family, ...]] = (
        *RUNNER,
        BATCHES,
        *COUNTS.values(),
        STEPS,
        BAD,
        SETTLED,
        FORGOTTEN,
        SECONDS,
        SIZE,
        LAG_OFFSETS,
        LAG_SECONDS,
        OUTBOX,
    )

    def __init__(self, group: str) -> None:
        super().__init__("projections", group, group=group)
        self._lag, self._noted = RunLag({}, 0.0), 0.0
        self.compute(LAG_SECONDS, self._lag_seconds)

    def batch(self, report: BatchReport) -> None:
        """Count an applied batch."""
        self.count(BATCHES)
        for name, family in COUNTS.items():
            self.count(family, getattr(report, name))
        for step, seconds in report.seconds.items():
            self.count(STEPS, seconds, step=step)
        for kind, count in report.set_aside.items():
            self.count(BAD, count, kind=kind)
        self.observe(SECONDS, report.total_seconds)

    def standing(self, lag: RunLag, *, topics: Iterable[str], batch_size: int) -> None:
        """Note how far behind the run is, and what the next batch may hold."""
        for topic in topics:
            self.set(LAG_OFFSETS, lag.offsets.get(topic, 0), topic=topic)
        self.set(SIZE, batch_size)
        self._lag, self._noted = lag, time.monotonic()

    def waiting(self, rows: Mapping[str, int]) -> None:
        """Note how many records of each view topic are not published yet."""
        for topic, count in rows.items():
            self.set(OUTBOX, count, topic=topic)

    def let_go(self, settled: Mapping[str, int]) -> None:
        """Count deleted rows that were let go of, by table."""
        for table, count in settled.items():
            self.count(SETTLED, count, table=table)

    def forgot(self, rows: Mapping[str, int]) -> None:
        """Count rows that were forgotten, by table."""
        for table, count in rows.items():
            self.count(FORGOTTEN, count, table=table)

    def _lag_seconds(self) -> float:
        """What waits grows older between two looks, and while no batch succeeds."""
        age = time.monotonic() - self._noted if self._lag.records else 0.0
        return self._lag.seconds + age
