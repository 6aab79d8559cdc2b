"""Metrics of an archiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from projections.spark.archive.appended import Appended

OFFSETS: Final = Family("factfold_archive_offsets_total", Kind.COUNTER, "Offsets of a topic archived.", ("topic",))
SECONDS: Final = Family(
    "factfold_archive_append_seconds_total", Kind.COUNTER, "Seconds spent in appends of a topic.", ("topic",)
)
LAG: Final = Family(
    "factfold_archive_lag_offsets", Kind.GAUGE, "Offsets of a topic that waited when its last append ended.", ("topic",)
)
LAST: Final = Family(
    "factfold_archive_round_timestamp_seconds",
    Kind.GAUGE,
    "When all topics were last archived to their ends.",
    ("name",),
)


class ArchiveMetrics(RunnerMetrics):
    """The metrics of one archiver, for `Archiver.run`.

    Examples:
        >>> metrics = ArchiveMetrics("shop")
        >>> with serve_metrics(metrics, port=9464):
        ...     archiver.run(["order"], stop=stop, metrics=metrics)
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, OFFSETS, SECONDS, LAG, LAST)

    def __init__(self, name: str) -> None:
        super().__init__("archive", name)

    def appended(self, done: Appended) -> None:
        """Count an append."""
        self.count(OFFSETS, done.offsets, topic=done.topic)
        self.count(SECONDS, done.seconds, topic=done.topic)
        self.set(LAG, done.waiting, topic=done.topic)

    def caught_up(self, now: float) -> None:
        """Note, in Unix time, that all topics were archived up to their ends."""
        self.recovered()
        self.set(LAST, now)
