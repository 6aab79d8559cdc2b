"""Erasures as one more input of projections: a topic of one partition whose records are the keys that were destroyed.

A row with a value of a person refers to the key it is sealed under; a destroyed key is a change that reaches the row as
any parent's does. Nothing but ids of keys travels this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from eventstore.erasure import FollowedKeys
from projections.declaring.group import ERASURES
from projections.logs.layered_log import LayeredLog
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import DeadLetters, OpenLog, arrow_record_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PARTITION: Final = 0


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
