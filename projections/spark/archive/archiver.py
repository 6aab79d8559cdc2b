"""Topics into their archive: a range of offsets, its rows and its end in one commit, again and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import ClassVar, Final

import structlog

from eventstore.errors import BrokerRefused, BrokerUnreachable
from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics
from eventstore.restarts import Outwaiting, Restarts
from eventstore.settings import Settings
from projections.errors import OffsetsLost, SparkFailed
from projections.logs.layers import ArchivableLog, Extent, require_same
from projections.logs.offsets import OffsetRange, bounded
from projections.logs.port import OpenLog
from projections.logs.ranges import deletions_lost
from projections.spark.archive.delta_archive import SMALL_BYTES, DeltaArchive, TopicTable
from projections.spark.failures import described
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.session import end_session, open_session

# Offsets an append: some ten seconds of reading, so that a kill costs little and a file is worth opening.
MAX_OFFSETS: Final = 2_000_000
# Between two looks at the topics: an append makes a file a partition, and a quick reader has Kafka for what is new.
EVERY_SECONDS: Final = 10.0
# A table is compacted if it has more files than this, apart from those of full size.
MOST_SMALL_FILES: Final = 64
_PASSING: Final = (BrokerUnreachable, BrokerRefused, SparkFailed)

log = structlog.get_logger()
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


@dataclass(frozen=True)
class Appended:
    """One append: the topic, the offsets it spans, of which markers of transactions hold no record, and its seconds.

    ``waiting`` is how many more the topic had when the append began.
    """

    topic: str
    offsets: int
    waiting: int
    seconds: float


@dataclass(frozen=True)
class Archiver:
    """Archives topics of one log. Of several archivers, one at a time appends to a topic.

    Attributes:
        log: The log.
        archive: The archive.
        max_offsets: The offsets of one append at most.
        incomplete: Archive also a topic that has lost its first records, from where it begins. Otherwise OffsetsLost is
            raised.

    Examples:
        >>> with open_archiver(Settings(), "/var/lib/shop/archive", jars=jars) as archiver:
        ...     archiver.catch_up(["order", "shop.public.customers"])
        500
    """

    log: ArchivableLog
    archive: DeltaArchive
    max_offsets: int = MAX_OFFSETS
    incomplete: bool = False
    _whole_at: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def append(self, topic: str) -> Appended | None:
        """Archive one range of new records. Return None if nothing is new.

        Raises:
            OffsetsLost: Records were deleted before they were archived, or the topic was created again.
            ProjectionError: Another archiver appended meanwhile.
            TopicMissing: The topic does not exist. BrokerUnreachable: no broker answered.
        """
        begun = time.perf_counter()
        table = self.archive.table(topic)
        with self.log.open() as opened:
            extent = table.extent() or self._made(table)
            new = self._new(opened, table, extent)
            if not new.changed_topics():
                return None
            offsets = bounded(new.start, new.end, max_records=self.max_offsets)
            self._append(table, opened, offsets)
        done = Appended(topic, offsets.records, new.records - offsets.records, time.perf_counter() - begun)
        log.info("archived", topic=topic, offsets=done.offsets, seconds=round(done.seconds, 3))
        return done

    def catch_up(
        self,
        topics: Sequence[str],
        *,
        on_append: Callable[[Appended], None] = lambda done: None,
        stop: Event | None = None,
    ) -> int:
        """Archive what the topics hold, one topic after another. Return the number of offsets."""
        count = 0
        for topic in topics:
            while not (stop and stop.is_set()) and (done := self.append(topic)):
                on_append(done)
                count += done.offsets
                if not done.waiting:
                    break  # what came meanwhile is the next round's: a topic that never rests keeps no other waiting
            self._compact_if_many(topic)
        return count

    def run(
        self,
        topics: Sequence[str],
        *,
        stop: Event,
        every: float = EVERY_SECONDS,
        on_append: Callable[[Appended], None] = lambda done: None,
        metrics: ArchiveMetrics | None = None,
    ) -> None:
        """Archive new records every so many seconds until ``stop`` is set. The current append is finished first.

        A broker or file system that does not answer is tried again, eight times in a row. ``metrics`` counts for
        Prometheus.
        """
        outwaiting = Outwaiting(
            Restarts(first=every, longest=every),
            what="archive",
            place=self.archive.folder.uri,
            passes=lambda error: isinstance(error, _PASSING),
            counted_by=metrics,
            healthy_after=math.inf,  # one append may last for minutes, and fail at its end
        )
        while not stop.is_set():
            with outwaiting.over(stop):
                self.catch_up(topics, on_append=_counted(on_append, metrics), stop=stop)
                outwaiting.recovered()
                if metrics is not None:
                    metrics.caught_up(time.time())
                stop.wait(every)

    def _made(self, table: TopicTable) -> Extent:
        topic_id = self.log.topic_ids([table.topic])[table.topic]
        table.make(topic_id)
        return table.extent() or Extent(topic_id, {}, {})

    def _new(self, opened: OpenLog, table: TopicTable, extent: Extent) -> OffsetRange:
        topic = table.topic
        begins, ends = opened.beginning_offsets([topic])[topic], opened.end_offsets([topic])[topic]
        require_same(topic, extent, topic_id=self.log.topic_ids([topic])[topic], ends=ends)
        first = begins if self.incomplete else dict.fromkeys(begins, 0)
        start = {partition: extent.end.get(partition, first[partition]) for partition in ends}
        require_retained(topic, start, begins)
        self._require_deletions(opened, table, extent, ends)
        # A new partition is recorded even if it is empty.
        return OffsetRange({topic: start}, {topic: ends})

    def _require_deletions(self, opened: OpenLog, table: TopicTable, extent: Extent, ends: Mapping[int, int]) -> None:
        """Raise OffsetsLost if the topic may have removed deletions that the archive has not read yet.

        The topic retains a deletion for its retention time. No append misses one while less time has passed since the
        archive was made, or since it last reached the offsets from which the topic retains every deletion.
        """
        topic, now = table.topic, time.time()
        complete_from = opened.deletions_complete_from([topic]).get(topic, {})
        behind = [p for p, at in extent.end.items() if extent.begin[p] < at < min(complete_from.get(p, 0), ends[p])]
        if not behind:
            self._whole_at[topic] = now
        elif now - max(table.made_at(), self._whole_at.get(topic, 0.0)) > self._retention_seconds(topic):
            remedy = "move that topic's folder out of the archive, and archive the topic again; archive more often"
            raise deletions_lost(topic, behind[0], remedy=remedy)

    def _retention_seconds(self, topic: str) -> float:
        return self.log.deletion_retention([topic])[topic].total_seconds()

    def _append(self, table: TopicTable, opened: OpenLog, offsets: OffsetRange) -> None:
        topic, start, end = table.topic, offsets.start[table.topic], offsets.end[table.topic]

        def require_still_retained() -> None:
            """Records that the topic deleted during the append may be missing from the rows, without an error."""
            require_retained(topic, start, opened.beginning_offsets([topic])[topic])

        with described(f"topic {topic}"):
            rows = self.log.scan_whole(self.archive.spark, offsets)
            table.append(rows, start, end, before_commit=require_still_retained)

    def _compact_if_many(self, topic: str) -> None:
        table = self.archive.table(topic)
        files, size = table.files()
        if files > MOST_SMALL_FILES + 2 * (size // SMALL_BYTES):
            log.info("archive compacted", topic=topic, **table.compact())


@contextmanager
def open_archiver(
    settings: Settings,
    path: str | Path,
    *,
    jars: Sequence[Path],
    memory: str = "1g",
    incomplete: bool = False,
) -> Iterator[Archiver]:
    """Open an archiver of Kafka's topics. It starts Spark, and stops it at the end.

    Args:
        settings: The settings of Kafka.
        path: A folder of this machine, or a URI that Hadoop understands.
        jars: The jars for Kafka and Delta Lake.
        memory: The heap of the driver.
        incomplete: As in Archiver.

    Raises:
        ProjectionError: The archive cannot be opened.

    Examples:
        >>> with open_archiver(Settings(), "/var/lib/shop/archive", jars=[*spark_jars(), *delta_jars()]) as archiver:
        ...     archiver.run(["order", "shop.public.customers"], stop=stop)
    """
    spark = open_session(jars, memory=memory)
    try:
        yield Archiver(KafkaLog(settings), DeltaArchive.open(spark, path), incomplete=incomplete)
    finally:
        end_session(spark)


def _counted(on_append: Callable[[Appended], None], metrics: ArchiveMetrics | None) -> Callable[[Appended], None]:
    if metrics is None:
        return on_append

    def tell(done: Appended) -> None:
        metrics.appended(done)
        on_append(done)

    return tell


def require_retained(topic: str, start: Mapping[int, int], begins: Mapping[int, int]) -> None:
    """Raise OffsetsLost if a topic begins behind the offset that is read next."""
    for partition, first in begins.items():
        if start[partition] < first:
            raise OffsetsLost(
                f"offsets {start[partition]} to {first - 1} went before they were archived",
                remedy="publish the topic again and archive it again, or archive what is left into another folder "
                "(incomplete), from which no view can be rebuilt",
                place=f"topic {topic}, partition {partition}",
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
