"""A log in front of another one: of a topic's records it says itself what it can, everything else the other says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from projections.logs.port import DeadLetters, RecordLog

if TYPE_CHECKING:
    from datetime import timedelta

    from projections.declaring.view_topics import ViewTopics
    from projections.logs.port import SourceBoundaries


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
