"""View topics: the rows of a view in Kafka, the newest of each key, for services and for views of other groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from eventstore.errors import InvalidIdentifier
from eventstore.identifiers import check_topic
from eventstore.topics import DEFAULT_PARTITIONS, TopicSpec, view_topic
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from projections.group import ProjectionGroup


@dataclass(frozen=True)
class ViewTopic:
    """A topic that holds a view's rows: its name, its partitions, which are fixed for life, and its compaction lag.

    The lag is how long no record is compacted away: longer than the longest rebuild of whoever reads the topic.
    """

    name: str
    partitions: int = DEFAULT_PARTITIONS
    compaction_lag: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        try:
            check_topic(self.name)
        except InvalidIdentifier as error:
            raise InvalidDefinition(error.message, remedy=error.remedy) from error
        if self.partitions < 1 or self.compaction_lag < timedelta(milliseconds=1):
            raise InvalidDefinition(
                f"view topic {self.name!r} has {self.partitions} partitions and a lag of {self.compaction_lag}",
                remedy="give it at least one partition, and a lag longer than the longest rebuild of its readers",
            )

    @staticmethod
    def of(topic: str | ViewTopic | None) -> ViewTopic | None:
        """What a view was declared with."""
        return ViewTopic(topic) if isinstance(topic, str) else topic

    @property
    def spec(self) -> TopicSpec:
        """The topic as it has to be."""
        lag = self.compaction_lag // timedelta(milliseconds=1)
        return view_topic(self.name, partitions=self.partitions, compaction_lag_ms=lag)


def topics_of(group: ProjectionGroup) -> Iterator[ViewTopic]:
    """The view topics that a group fills."""
    return (view.topic for view in group.kept if view.topic is not None)


def check_topics(group: ProjectionGroup) -> None:
    """Raise InvalidDefinition where two views of a group fill one topic, or the group reads what it fills."""
    names = [topic.name for topic in topics_of(group)]
    for name in names:
        if names.count(name) > 1:
            raise _refused(name, f"is filled by two views of group {group.name!r}")
        if name in group.topics:
            raise _refused(name, f"is filled by group {group.name!r}, which reads it too")


def _refused(topic: str, why: str) -> InvalidDefinition:
    remedy = "give every view a topic of its own; within a group, a view reads another one by its name"
    return InvalidDefinition(f"topic {topic!r} {why}", remedy=remedy)


Row = dict[str, Any]
"""A record as the producer takes it: `key`, and `value` or None."""


class RowProducer(Protocol):
    """Takes the rows of view topics."""

    def send(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Append the rows of each topic, in their order; returns once all are stored for good, or none is."""


class ViewTopics(Protocol):
    """Where view topics are: the part of a log that views are written to."""

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing and return their names; TopicMismatch for one of another shape."""

    def holding(self, topics: Sequence[str]) -> list[str]:
        """Those that hold, or held, any record."""

    def producer(self, group: str) -> AbstractContextManager[RowProducer]:
        """The one producer of a group's rows: opening it shuts every earlier one out."""
