"""An archive compared with its topic, over the offsets that both have, and the release of archived records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eventstore.kafka.admin import limit_retention
from eventstore.settings import Settings
from projections.errors import ProjectionError
from projections.logs.layers import ArchivableLog, Extent, require_same
from projections.logs.offsets import OffsetRange
from projections.spark.archive.delta_archive import DeltaArchive, between
from projections.spark.failures import described

_PLACE: Final = ("partition", "offset")
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class ArchiveVerdict:
    """A topic's archive compared with the topic, counted in records, up to the end of the archive.

    Attributes:
        whole: The archive reaches back to the topic's first record.
        archived: The archived records.
        compared: The records that the topic still holds of the archived offsets.
        missing: Those of them that the archive does not hold, or not as they are.
        only_archived: Archived records that the topic does not have, as after compaction.
        repeated: Offsets that are archived several times, or outside the archive's range.
        compacted: The topic is compacted.

    Examples:
        >>> verdict = verify_archive(archiver.log, archiver.archive, "order")
        >>> verdict.equal, verdict.missing
        (True, 0)
    """

    topic: str
    whole: bool
    archived: int
    compared: int
    missing: int
    only_archived: int
    repeated: int
    compacted: bool

    @property
    def equal(self) -> bool:
        """Whether the archive holds every record of the topic up to its end, and none that the topic never had."""
        surplus = 0 if self.compacted else self.only_archived
        return not (self.missing or self.repeated or surplus)


def verify_archive(log: ArchivableLog, archive: DeltaArchive, topic: str) -> ArchiveVerdict:
    """Compare every archived record with the topic's: key, value, headers and time.

    Returns:
        `equal`, and records by number: `archived`, `compared`, `missing`, `only_archived` and `repeated`.

    Raises:
        ProjectionError: Nothing is archived.
        OffsetsLost: The topic was created again.
        TopicMissing: The topic does not exist. BrokerUnreachable: no broker answered.

    Examples:
        >>> verify_archive(archiver.log, archiver.archive, "order").equal
        True
    """
    extent = _extent(archive, topic)
    shared = _shared(log, topic, extent)
    compacted = "compact" in log.cleanup_policies([topic])[topic]
    with described(f"topic {topic}"):
        archived, repeated = _inner_facts(archive, topic, extent)
        compared, missing, only_archived = _held_against(log, archive, topic, shared) if shared.records else (0, 0, 0)
    return ArchiveVerdict(
        topic, extent.whole, archived=archived, compared=compared, missing=missing,
        only_archived=only_archived, repeated=repeated, compacted=compacted,
    )  # fmt: skip


def release_topic(
    settings: Settings,
    log: ArchivableLog,
    archive: DeltaArchive,
    topic: str,
    *,
    retention: timedelta,
    patience: timedelta = timedelta(seconds=30),
) -> tuple[ArchiveVerdict, Mapping[str, str]]:
    """Let the topic delete records older than ``retention``, after checking that the archive holds all its records.

    Args:
        settings: The settings of Kafka.
        log: The log of the topic.
        archive: The archive.
        topic: The topic.
        retention: The time that the topic retains records from now on.
        patience: How long to wait for an archiver that is at work.

    Returns:
        The comparison, and the settings that the topic got.

    Raises:
        ProjectionError: The archive lacks a record, or does not reach back to the topic's first. The topic stays as it
            is.

    Examples:
        >>> released = release_topic(settings, archiver.log, archiver.archive, "order", retention=timedelta(days=30))
        >>> released[1]
        {'cleanup.policy': 'compact,delete', 'retention.ms': '2592000000'}
    """
    if not _extent(archive, topic).whole:
        raise ProjectionError(
            "the archive does not reach back to the topic's first record",
            remedy="views could not be rebuilt: keep the topic, or set its retention by other means",
            place=f"topic {topic}",
            code="archive-differs",
        )
    _until_archived(log, archive, topic, seconds=patience.total_seconds())
    verdict = verify_archive(log, archive, topic)
    if not verdict.equal:
        raise ProjectionError(
            f"{verdict.missing} records of the topic are not in its archive, {verdict.repeated} are there twice, "
            f"{verdict.only_archived} only there",
            remedy="keep the topic as it is. Move its folder out of the archive, and archive it again",
            place=f"topic {topic}",
            code="archive-differs",
        )
    return verdict, limit_retention(settings, topic, retention_ms=int(retention / timedelta(milliseconds=1)))


def _extent(archive: DeltaArchive, topic: str) -> Extent:
    extent = archive.table(topic).extent()
    if extent is not None and extent.end:
        return extent
    raise ProjectionError(
        f"nothing is archived of {topic!r}",
        remedy="archive it first: factfold archive once",
        place=archive.folder.uri,
        code="archive-unusable",
    )


def _until_archived(log: ArchivableLog, archive: DeltaArchive, topic: str, *, seconds: float) -> None:
    """Wait until everything is archived, of every partition, that the topic holds now; ProjectionError."""
    with log.open() as opened:
        ends = opened.end_offsets([topic])[topic]
    late = time.monotonic() + seconds
    while waiting := _extent(archive, topic).waiting(ends):
        if time.monotonic() > late:
            raise ProjectionError(
                f"{waiting} offsets of the topic are not archived yet",
                remedy="archive them, factfold archive once, and have factfold archive run at work from then on",
                place=f"topic {topic}",
                code="archive-differs",
            )
        time.sleep(_LOOK_SECONDS)


def _shared(log: ArchivableLog, topic: str, extent: Extent) -> OffsetRange:
    """The offsets that archive and topic both span."""
    with log.open() as opened:
        begins, ends = opened.beginning_offsets([topic])[topic], opened.end_offsets([topic])[topic]
    require_same(topic, extent, topic_id=log.topic_ids([topic])[topic], ends=ends)
    start = {p: min(max(extent.begin[p], begins[p]), end) for p, end in extent.end.items()}
    return OffsetRange({topic: start}, {topic: extent.end})


def _inner_facts(archive: DeltaArchive, topic: str, extent: Extent) -> tuple[int, int]:
    """How many records the archive has, and how many offsets too many."""
    rows = archive.table(topic).rows(archive.spark)
    inside = between(extent.begin, extent.end) if extent.offsets else F.lit(False)
    offsets = (
        rows.select(*_PLACE, inside.alias("inside"))
        .groupBy(*_PLACE)
        .agg(F.count(F.lit(1)).alias("times"), F.min("inside").alias("inside"))
    )
    surplus = F.when(F.col("inside"), F.col("times") - 1).otherwise(F.col("times"))
    counts = offsets.agg(F.coalesce(F.sum("times"), F.lit(0)), F.coalesce(F.sum(surplus), F.lit(0))).toArrow()
    return tuple(column[0].as_py() for column in counts.columns)


def _held_against(log: ArchivableLog, archive: DeltaArchive, topic: str, shared: OffsetRange) -> tuple[int, int, int]:
    """Records of the topic, those of them that the archive lacks, and those that only the archive has."""
    theirs = _hashed(log.scan_whole(archive.spark, shared))
    nonempty = shared.not_empty()
    rows = archive.table(topic).rows(archive.spark).where(between(nonempty.start[topic], nonempty.end[topic]))
    return _differences(theirs, _hashed(rows))


def _differences(theirs: DataFrame, ours: DataFrame) -> tuple[int, int, int]:
    """Counted side by side in one pass: a record is the same where its place and all of its columns are."""
    both = theirs.withColumn("topic", F.lit(1)).unionByName(ours.withColumn("topic", F.lit(0)))
    sides = both.groupBy(*_PLACE, "hash").agg(F.max("topic").alias("there"), F.min("topic").alias("here"))
    counts = sides.agg(
        F.count_if(F.col("there") == 1), F.count_if(F.col("here") == 1), F.count_if(F.col("there") == 0)
    ).toArrow()
    return tuple(column[0].as_py() for column in counts.columns)


def _hashed(rows: DataFrame) -> DataFrame:
    return rows.select(*_PLACE, _hash().alias("hash"))


def _hash() -> Column:
    """A hash of the whole record. With its place, 64 bits are enough unless records are forged."""
    # A null leaves the hash unchanged: isnull adds it.
    return F.xxhash64("topic", "key", "value", "headers", "timestamp", F.isnull("key"), F.isnull("value"))
