"""Logs in front of another one: of a topic's records they say themselves what they can, all else the other says.

`LogWithErasures` adds erasures as one more input: a topic of one partition whose records are the keys that were
destroyed. A row with a value of a person refers to the key it is sealed under; a destroyed key is a change that reaches
the row as any parent's does. Nothing but ids of keys travels this way.

`ArchivedLog` reads archives of topics: every committed record in columns, outside of Kafka, with the exact offsets
they reach. It gives the archived records from there, and the rest from the topic. So a topic may lose what is archived,
and a rebuild still begins at offset 0. Delta Lake stands behind it (``projections.spark.archive``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from eventstore.erasure import FollowedKeys
from eventstore.schema_registry import RegisteredSchema
from projections.declaring.group import ERASURES
from projections.errors import OffsetsLost
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import DeadLetters, OpenLog, RecordLog, SourceBoundaries, arrow_record_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from projections.declaring.view_topics import ViewTopics


_PARTITION: Final = 0


@dataclass(frozen=True)
class LayeredLog:
    """What of a `projections.logs.port.RecordLog` is the same behind every layer."""

    log: RecordLog

    def schemas(self, avro_changelogs: Collection[str] = ()) -> Mapping[int, RegisteredSchema]:
        """The log's."""
        return self.log.schemas(avro_changelogs)

    def cleanup_policies(self, topics: Collection[str]) -> Mapping[str, str]:
        """The log's; TopicMissing."""
        return self.log.cleanup_policies(topics)

    def deletion_retention(self, topics: Collection[str]) -> Mapping[str, timedelta]:
        """The log's; TopicMissing."""
        return self.log.deletion_retention(topics)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The log's; TopicMissing."""
        return self.log.topic_ids(topics)

    def transactions(self, prefix: str, topics: Sequence[str]) -> SourceBoundaries:
        """The log's; InvalidDefinition."""
        return self.log.transactions(prefix, topics)

    def dead_letters(self, topics: Sequence[str], *, group: str) -> AbstractContextManager[DeadLetters]:
        """The log's; InvalidDefinition."""
        return self.log.dead_letters(topics, group=group)

    def view_topics(self) -> ViewTopics:
        """The log's; InvalidDefinition."""
        return self.log.view_topics()


@dataclass(frozen=True)
class LogWithErasures(LayeredLog):
    """A log with the erasures of a key store as one more topic."""

    keys: FollowedKeys

    @contextmanager
    def open(self) -> Iterator[OpenLogWithErasures]:
        """The log opened; the key store connects by itself."""
        with self.log.open() as opened:
            yield OpenLogWithErasures(opened, self.keys)

    def dead_letters(self, topics: Sequence[str], *, group: str) -> AbstractContextManager[DeadLetters]:
        """The log's; InvalidDefinition."""
        return super().dead_letters(_without(topics), group=group)

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The records of a range of one input."""
        if ERASURES in offsets.end:
            return spark.createDataFrame(_records(self.keys, offsets, headed=headed))
        return self.log.scan(spark, offsets, headed=headed)


@dataclass(frozen=True)
class OpenLogWithErasures:
    """A connection to the log, and the key store."""

    log: OpenLog
    keys: FollowedKeys

    def beginning_offsets(self, topics: Sequence[str]) -> Offsets:
        """As the log's; erasures begin at 0."""
        return {**self.log.beginning_offsets(_without(topics)), **_at(topics, 0)}

    def end_offsets(self, topics: Sequence[str]) -> Offsets:
        """As the log's; erasures end at their number. StoreUnavailable."""
        erased = _at(topics, self.keys.erasures() if ERASURES in topics else 0)
        return {**self.log.end_offsets(_without(topics)), **erased}

    def offsets_at(self, moment: datetime, topics: Sequence[str]) -> Offsets:
        """As the log's, of its topics: an erasure does not say when it was."""
        return self.log.offsets_at(moment, _without(topics))

    def deletions_complete_from(self, topics: Sequence[str]) -> Offsets:
        """As the log's; erasures are never deleted."""
        return self.log.deletions_complete_from(_without(topics))

    def fetch(self, offsets: OffsetRange, *, headed: bool = False) -> pa.Table:
        """As the log's; an erasure has the key's id, 16 bytes, for its key, and no value."""
        others = offsets.without(ERASURES)
        tables = [self.log.fetch(others, headed=headed)] if others.changed_topics() else []
        if ERASURES in offsets.end:
            tables.append(_records(self.keys, offsets, headed=headed))
        return pa.concat_tables(tables) if tables else arrow_record_schema(headed=headed).empty_table()

    def oldest(self, offsets: OffsetRange) -> datetime | None:
        """As the log's; an erasure does not say when it was."""
        return self.log.oldest(offsets.without(ERASURES))


def _without(topics: Sequence[str]) -> list[str]:
    return [topic for topic in topics if topic != ERASURES]


def _at(topics: Sequence[str], offset: int) -> dict[str, dict[int, int]]:
    return {ERASURES: {_PARTITION: offset}} if ERASURES in topics else {}


def _records(keys: FollowedKeys, offsets: OffsetRange, *, headed: bool) -> pa.Table:
    first, last = offsets.start[ERASURES][_PARTITION], offsets.end[ERASURES][_PARTITION]
    destroyed = [key.bytes for key in keys.destroyed(first, last)]
    schema = arrow_record_schema(headed=headed)
    columns = {
        "topic": [ERASURES] * len(destroyed),
        "partition": [_PARTITION] * len(destroyed),
        "offset": list(range(first, first + len(destroyed))),
        "key": destroyed,
    }
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * len(destroyed)), f.type) for f in schema})


@dataclass(frozen=True)
class Extent:
    """What an archive holds of one topic: by partition, from ``begin`` inclusive to ``end`` exclusive.

    ``topic_id`` tells the topic from another of its name. A partition that is not named has nothing archived.
    """

    topic_id: str
    begin: Mapping[int, int]
    end: Mapping[int, int]

    @property
    def offsets(self) -> int:
        """How many offsets it spans; offsets without a record count too."""
        return sum(end - self.begin[partition] for partition, end in self.end.items())

    @property
    def whole(self) -> bool:
        """Whether it reaches back to the topic's first record."""
        return all(first == 0 for first in self.begin.values())

    def waiting(self, ends: Mapping[int, int]) -> int:
        """How many offsets the topic has behind it, up to its ends; all of a partition that is not named."""
        return sum(end - self.end.get(partition, 0) for partition, end in ends.items())

    def reaches(self, partition: int, start: int) -> int:
        """The offset up to which the archive can be read from ``start`` on; ``start`` itself where it cannot."""
        if partition not in self.end or start < self.begin[partition]:
            return start
        return max(start, self.end[partition])

    def first(self, partition: int, start: int) -> int:
        """The first offset that archive or topic hold, with none missing from there on; ``start`` is the topic's."""
        reached = partition in self.end and self.end[partition] >= start
        return min(start, self.begin[partition]) if reached else start


class Archive(Protocol):
    """Topics in columns."""

    def extents(self, topics: Collection[str]) -> Mapping[str, Extent]:
        """What it holds of each of the topics; one it knows nothing of is left out. ProjectionError."""

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The records of a range it holds, which is not empty; columns of ``record_schema``."""


class ArchivableLog(RecordLog, Protocol):
    """A log whose topics can be archived: it gives all that a record has, and knows a topic from its successor."""

    def scan_whole(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """As ``scan``, with ``headers``, ``ce_time`` and ``timestamp`` too."""


@dataclass(frozen=True)
class ArchivedLog(LayeredLog):
    """A log whose older records are read from an archive. ``spark`` reads small ranges of archived records.

    Examples:
        >>> environment = Environment.open(Settings(), views_url=views_url, jars=jars, archive="/var/lib/shop/archive")
        >>> isinstance(environment.log, ArchivedLog)
        True
    """

    log: ArchivableLog
    archive: Archive
    spark: SparkSession

    @contextmanager
    def open(self) -> Iterator[OpenArchivedLog]:
        """Connect to the log."""
        with self.log.open() as opened:
            yield OpenArchivedLog(self, opened)

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """Return the records of a range that is not empty: archived ones from the archive, the rest from the log."""
        archived, tail = divided(offsets, self.archive.extents(list(offsets.end)))
        frames = []
        if archived.changed_topics():
            frames.append(self.archive.scan(spark, archived, headed=headed))
        if tail.changed_topics():
            frames.append(self.log.scan(spark, tail, headed=headed))
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


@dataclass(frozen=True)
class OpenArchivedLog:
    """A connection to the log; the archive is asked where the log no longer has the records."""

    archived: ArchivedLog
    log: OpenLog
    _thinned: dict[str, Mapping[int, int]] = field(default_factory=dict, repr=False)

    def beginning_offsets(self, topics: Sequence[str]) -> Offsets:
        """The first offset that archive or topic hold, with none missing from there on; TopicMissing, OffsetsLost."""
        starts = self.log.beginning_offsets(topics)
        extents = self.archived.archive.extents(topics)
        if extents:
            ids, ends = self.archived.log.topic_ids(list(extents)), self.log.end_offsets(list(extents))
            for topic, extent in extents.items():
                require_same(topic, extent, topic_id=ids[topic], ends=ends[topic])
        return _first(extents, starts)

    def end_offsets(self, topics: Sequence[str]) -> Offsets:
        """The log's; TopicMissing."""
        return self.log.end_offsets(topics)

    def offsets_at(self, moment: datetime, topics: Sequence[str]) -> Offsets:
        """The log's. Raises OffsetsLost if only the archive has records of that time: it is not searched by time."""
        offsets, retained = self.log.offsets_at(moment, topics), self.log.beginning_offsets(topics)
        for topic, parts in offsets.items():
            for partition, offset in parts.items():
                if 0 < offset <= retained[topic][partition]:
                    raise OffsetsLost(
                        f"the topic has no records of {moment.isoformat()}: the archive has them without an index",
                        remedy="name the offsets in place of the time",
                        place=f"topic {topic}, partition {partition}",
                    )
        return offsets

    def deletions_complete_from(self, topics: Sequence[str]) -> Offsets:
        """The topics', or where the archive begins that reaches so far; what is before it is read from there then."""
        complete = self.log.deletions_complete_from(topics)
        extents = self.archived.archive.extents(list(complete))
        self._thinned.update(complete)
        return _first(extents, complete)

    def fetch(self, offsets: OffsetRange, *, headed: bool = False) -> pa.Table:
        """The records of a small range; of the archive, where the log no longer holds them all. OffsetsLost."""
        if not self._is_thinned(offsets):
            with suppress(OffsetsLost):
                return self.log.fetch(offsets, headed=headed)
        archived, tail = divided(offsets, self.archived.archive.extents(list(offsets.end)))
        if not archived.changed_topics():
            return self.log.fetch(offsets, headed=headed)
        records = self.archived.archive.scan(self.archived.spark, archived, headed=headed).toArrow()
        rest = self.log.fetch(tail, headed=headed)
        return pa.concat_tables([records.cast(rest.schema), rest])

    def _is_thinned(self, offsets: OffsetRange) -> bool:
        """Whether deletions in the range may be missing from the topics."""
        start = offsets.not_empty().start
        return any(o < self._thinned.get(t, {}).get(p, 0) for t, parts in start.items() for p, o in parts.items())

    def oldest(self, offsets: OffsetRange) -> datetime | None:
        """The log's; None where it no longer holds them."""
        try:
            return self.log.oldest(offsets)
        except OffsetsLost:
            return None


def _first(extents: Mapping[str, Extent], starts: Offsets) -> Offsets:
    """The first offsets that archives or topics hold, with none missing; ``starts`` are the topics'."""
    return {
        topic: {p: extents[topic].first(p, first) if topic in extents else first for p, first in parts.items()}
        for topic, parts in starts.items()
    }


def divided(offsets: OffsetRange, extents: Mapping[str, Extent]) -> tuple[OffsetRange, OffsetRange]:
    """The part of a range that is archived, and what follows it; both name every partition of the range."""

    def cut_at(topic: str, partition: int) -> int:
        start, end = offsets.start[topic][partition], offsets.end[topic][partition]
        return min(end, extents[topic].reaches(partition, start)) if topic in extents else start

    cut = {topic: {partition: cut_at(topic, partition) for partition in ends} for topic, ends in offsets.end.items()}
    return OffsetRange(offsets.start, cut), OffsetRange(cut, offsets.end)


def require_same(topic: str, extent: Extent, *, topic_id: str, ends: Mapping[int, int]) -> None:
    """Raise OffsetsLost where the archived topic is not the current one: it was deleted and created again."""
    beyond = [partition for partition, end in extent.end.items() if end > ends.get(partition, 0)]
    if topic_id == extent.topic_id and not beyond:
        return
    raise OffsetsLost(
        "the archive is of another topic of this name, which was deleted since"
        if topic_id != extent.topic_id
        else f"the topic ends before its archive, which holds {extent.end[beyond[0]]} offsets of partition {beyond[0]}",
        remedy="move that topic's folder out of the archive, and archive the topic again",
        place=f"topic {topic}",
    )
