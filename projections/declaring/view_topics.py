"""Topics that views fill: their rows, the newest of each key, or their final results, each once.

Final results are declared here: the promise after which rows of a view do not change any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from eventstore.errors import InvalidIdentifier
from eventstore.identifiers import check_topic
from eventstore.topics import DEFAULT_PARTITIONS, TopicSpec, final_topic, view_topic
from projections.declaring.columns import ColumnType
from projections.declaring.timing.promises import Lasting, exact
from projections.errors import InvalidDefinition

_NO_PROMISE: Final = "say how late a row may be in the log: FinalResults('window_end', after='10 minutes')"


@dataclass(frozen=True)
class ViewTopic:
    """A topic that holds a view's rows.

    Attributes:
        name: The topic.
        partitions: The partition count, which never changes.
        compaction_lag: How long no record is compacted away. Make it longer than the longest rebuild of a reader.

    Examples:
        >>> @view(key="id", topic=ViewTopic("order-amounts", partitions=8, compaction_lag=timedelta(hours=6)))
        ... def order_amounts(orders): return orders.select("id", "amount")
    """

    name: str
    partitions: int = DEFAULT_PARTITIONS
    compaction_lag: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        _require_name(self.name)
        if self.partitions < 1 or self.compaction_lag < timedelta(milliseconds=1):
            raise InvalidDefinition(
                f"view topic {self.name!r} has {self.partitions} partitions and a lag of {self.compaction_lag}",
                remedy="give it at least one partition, and a lag longer than the longest rebuild of its readers",
            )

    @staticmethod
    def of(topic: str | ViewTopic | None) -> ViewTopic | None:
        """Return the topic that a view was declared with."""
        return ViewTopic(topic) if isinstance(topic, str) else topic

    @property
    def spec(self) -> TopicSpec:
        """The topic, as it has to be."""
        lag = self.compaction_lag // timedelta(milliseconds=1)
        return view_topic(self.name, partitions=self.partitions, compaction_lag_ms=lag)


@dataclass(frozen=True)
class FinalTopic:
    """A topic that holds a view's final results, each once. A partition has them in the order of their publication.

    Attributes:
        name: The topic.
        partitions: The partition count, which never changes.

    Raises:
        InvalidDefinition: The name or the count is wrong.

    Examples:
        >>> final = FinalResults("window_end", after="10 minutes", topic=FinalTopic("final-orders", partitions=1))
    """

    name: str
    partitions: int = DEFAULT_PARTITIONS

    def __post_init__(self) -> None:
        _require_name(self.name)
        if self.partitions < 1:
            raise InvalidDefinition(
                f"topic {self.name!r} of final results has {self.partitions} partitions",
                remedy="give it at least one partition",
            )

    @staticmethod
    def of(topic: str | FinalTopic | None) -> FinalTopic | None:
        """Return the topic that final results were declared with."""
        return FinalTopic(topic) if isinstance(topic, str) else topic

    @property
    def spec(self) -> TopicSpec:
        """The topic, as it has to be."""
        return final_topic(self.name, partitions=self.partitions)


def _require_name(topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidIdentifier as error:
        raise InvalidDefinition(error.message, remedy=error.remedy) from error


Row = dict[str, Any]
"""A record as the producer takes it: `key`, and `value` or None."""


class RowProducer(Protocol):
    """Takes the rows of topics, and says what is in these."""

    def send(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Append the rows of each topic, in their order; returns once all are stored for good, or none is."""

    def ends(self, topic: str) -> Mapping[int, int]:
        """The offset after the last record of each partition."""

    def keys_between(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> set[str]:
        """The keys of the records from ``start`` (the beginning of a partition that is not in it) up to ``end``."""


class ViewTopics(Protocol):
    """Where the topics of views are: the part of a log that views are written to."""

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing and return their names; TopicMismatch for one of another shape."""

    def holding(self, topics: Sequence[str]) -> list[str]:
        """Those that hold, or held, any record."""

    def producer(self, group: str) -> AbstractContextManager[RowProducer]:
        """The one producer of a group's rows: opening it shuts every earlier one out."""


RESET: Final = ""
"""The key of a record that is no row: those behind it are all rows of the table, with columns that may be others."""

_PATH: Final = re.compile(r"(?!delta:)([a-zA-Z][a-zA-Z0-9+.-]+:)?/\S+")


def checked_lake(path: str | None) -> str | None:
    """Return the path of a Delta table without a slash at its end. Raises InvalidDefinition if it is not absolute."""
    if path is None or _PATH.fullmatch(path):
        return None if path is None else path.rstrip("/")
    raise InvalidDefinition(
        f"a Delta table cannot be at {path!r}",
        remedy="give an absolute path or a URI, such as lake='/lake/orders' or lake='s3a://lake/orders'",
    )


def named(place: str) -> str:
    """A topic, or the path of a Delta table, as an error names it."""
    return f"{'table' if '/' in place else 'topic'} {place!r}"


@dataclass(frozen=True)
class LakeChange:
    """Rows that wait for a Delta table: number, key and value as JSON, the newest of each key; no value deletes."""

    key: Sequence[str]
    columns: Mapping[str, ColumnType]
    rows: list[tuple[int, str, str | None]]


class LakeTables(Protocol):
    """The Delta tables of views. The writer of each is the runner of its group."""

    def ensure(self, paths: Sequence[str]) -> list[str]:
        """Make those that are missing, without columns, and return their paths."""

    def ids(self, paths: Sequence[str]) -> Mapping[str, str]:
        """The ids by which a table differs from an earlier one at its path."""

    def holding(self, paths: Sequence[str]) -> list[str]:
        """Those that anything was written to."""

    def write(self, path: str, group: str, change: LakeChange) -> None:
        """Merge the rows whose numbers are above those that the group has written; ProjectionError for a lost race."""


@dataclass(frozen=True)
class FinalResults:
    """When the rows of a view are final. Each final row is given out once.

    ``after`` is a promise: whatever belongs to a row is in the log at most so long after that time, by the clock of the
    views' database. Time passes by that clock once the run has applied the whole log: a quiet topic or a row stamped in
    the future does not stop it. A row that breaks the promise corrects the view, and is listed as late.

    Attributes:
        on: The column with the row's time.
        after: The time after it when the row is final.
        max_ahead: Rows that are further in the future are counted.
        topic: A topic that gets each result once. Nothing is removed from it.

    Raises:
        InvalidDefinition: A value is wrong.

    Examples:
        >>> @view(by="window_start", final=FinalResults("window_end", after="10 minutes"))
        ... def orders_per_hour(by_hour):
        ...     ends, orders = F.max("window_end").alias("window_end"), F.count("*").alias("orders")
        ...     return by_hour.groupBy("window_start").agg(ends, orders)
    """

    on: str
    after: Lasting | None = None
    max_ahead: Lasting = "1 day"
    topic: str | FinalTopic | None = None

    def __post_init__(self) -> None:
        for name, micros in (("after", self.after_micros), ("max_ahead", self.ahead_micros)):
            if micros < 0:
                raise InvalidDefinition(f"{name} {getattr(self, name)!r} is negative", remedy=_NO_PROMISE)
        _ = self.published

    @property
    def published(self) -> FinalTopic | None:
        """The topic of the results, None if they are only in a table."""
        return FinalTopic.of(self.topic)

    @property
    def after_micros(self) -> int:
        """The promise in microseconds."""
        if self.after is None:
            raise InvalidDefinition(f"final results on {self.on!r} without a promise", remedy=_NO_PROMISE)
        return exact(self.after, what="after")

    @property
    def ahead_micros(self) -> int:
        """How far ahead a time may be, in microseconds."""
        return exact(self.max_ahead, what="max_ahead")
