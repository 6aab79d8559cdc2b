"""How far a run is behind, in offsets and in seconds, and the metrics of its runner.

Seconds are the age of what waits longest: since when the runner has known of an offset that it has not applied. What
waits when a runner opens is as old as its oldest record says. No other clock is asked, so producers whose clocks are
wrong make no lag, and the markers of transactions, which have no time, are no exception.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cdc.changes.change_records import Lookup, commit_time
from cdc.errors import CdcError
from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics
from projections.declaring.group import ERASURES
from projections.errors import OffsetsLost
from projections.logs.offsets import OffsetRange, Offsets, filled
from projections.logs.port import OpenLog

if TYPE_CHECKING:
    from projections.spark.live.incremental import BatchReport


_LOOKS: Final = 600  # a run that is behind for an hour looks some thousand times; half of the looks tell enough
# Tombstones and markers of transactions say no time: so many offsets of each partition are looked at, one after the
# other. Behind them the former time stands. Few at first, since a record may be 16 MB.
_WINDOWS: Final = (2, 8, 32)
# A quiet batch takes a fifth of a second, the target is two, and beyond a minute something is wrong.
_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class RunLag:
    """Offsets that wait, by topic, and the seconds since the first of them was known; offsets count markers too."""

    offsets: Mapping[str, int]
    seconds: float

    @property
    def records(self) -> int:
        """Offsets that wait in all topics."""
        return sum(self.offsets.values())


class LagClock:
    """Notes where the topics ended at each look, and tells the age of the oldest look that is not reached."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, Offsets]] = []
        self.looked = False

    def saw(self, ends: Offsets, *, at: float) -> None:
        """Note the ends of the topics as of a moment, in seconds of any one clock."""
        self.looked = True
        if not self._looks or self._looks[-1][1] != ends:
            self._looks.append((at, ends))
        if len(self._looks) > _LOOKS:
            del self._looks[1::2]

    def lag(self, progress: Offsets, *, now: float) -> RunLag:
        """The lag of a run that stands at ``progress``."""
        while self._looks and not waiting_offsets(progress, self._looks[0][1]):
            del self._looks[0]
        if not self._looks:
            return RunLag({}, 0.0)
        return RunLag(waiting_offsets(progress, self._looks[-1][1]), max(0.0, now - self._looks[0][0]))


def waiting_offsets(progress: Offsets, ends: Offsets) -> dict[str, int]:
    """Offsets between progress and the ends, by topic; topics where none is are left out."""
    waiting = {
        t: sum(max(0, end - progress.get(t, {}).get(p, 0)) for p, end in parts.items()) for t, parts in ends.items()
    }
    return {topic: offsets for topic, offsets in waiting.items() if offsets}


def waited_seconds(log: OpenLog, progress: Offsets, ends: Offsets, *, now: datetime) -> float | None:
    """For how long the oldest of the records that come next has been in the log, 0 where none waits, by one look.

    None where they do not say: markers of transactions, captured rows on the embedded road, records no longer kept.
    """
    if not waiting_offsets(progress, ends):
        return 0.0
    try:
        oldest = log.oldest(OffsetRange(filled(progress, ends), ends))
    except OffsetsLost:
        return None
    return None if oldest is None else max(0.0, (now - oldest).total_seconds())


def applied_commits(log: OpenLog, progress: Offsets, *, schemas: Lookup | None = None) -> dict[str, datetime]:
    """Return, by topic, when the newest applied record was committed at its source.

    Of an event that is its time, of a change event the commit of its transaction. A topic whose last applied records do
    not say is left out.

    Lag says what waits in the topics. A topic may lack what its source has. Lag is 0 then, and only the time of the
    newest applied commit shows that the views are old.

    Args:
        log: The topics.
        progress: How far a run has come.
        schemas: Finds the schema of an id, for changelogs in Avro.

    Raises:
        OffsetsLost: The records are no longer in the topic.
    """
    commits: dict[str, datetime] = {}
    topics = [topic for topic in progress if topic != ERASURES]
    for window in _WINDOWS:
        if missing := [topic for topic in topics if topic not in commits]:
            commits |= _newest(log, _last(log, {topic: progress[topic] for topic in missing}, window), schemas)
    return commits


def _newest(log: OpenLog, offsets: OffsetRange, schemas: Lookup | None) -> dict[str, datetime]:
    commits: dict[str, datetime] = {}
    for row in log.fetch(offsets, headed=True).to_pylist():
        moment = _moment(row, schemas)
        if moment is not None:
            commits[row["topic"]] = max(moment, commits.get(row["topic"], moment))
    return commits


def _last(log: OpenLog, ends: Offsets, window: int) -> OffsetRange:
    begins = log.beginning_offsets(list(ends))
    start = {
        topic: {p: max(begins[topic].get(p, 0), end - window) for p, end in parts.items()}
        for topic, parts in ends.items()
    }
    return OffsetRange(start, ends)


def _moment(row: Mapping[str, Any], schemas: Lookup | None) -> datetime | None:
    if row["ce_time"] is not None:
        return datetime.fromisoformat(row["ce_time"])
    if row["value"] is None:
        return None
    try:
        return commit_time(row["value"], f"{row['topic']}[{row['partition']}]@{row['offset']}", schemas=schemas)
    except CdcError:
        return None  # a record that was set aside, or one in Avro without a registry


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
