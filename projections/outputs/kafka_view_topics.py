"""Topics of views in Kafka: made and checked, and written by one producer a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from eventstore.kafka.admin import OffsetReader, end_offsets, ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import Publisher
from eventstore.kafka.topic_settings import require_unlimited
from eventstore.settings import Settings
from eventstore.topics import TopicSpec
from projections.declaring.view_topics import Row


@dataclass(frozen=True)
class KafkaViewTopics:
    """A `projections.declaring.view_topics.ViewTopics`."""

    settings: Settings

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing and return their names; TopicMismatch, BrokerUnreachable, BrokerRefused."""
        made = ensure_topics(self.settings, topics)
        uncompacted = [topic.name for topic in topics if topic.config["cleanup.policy"] == "delete"]
        require_unlimited(self.settings, uncompacted)
        return made

    def holding(self, topics: Sequence[str]) -> list[str]:
        """Those that hold, or held, any record."""
        ends = end_offsets(self.settings, topics) if topics else {}
        return [topic for topic, parts in ends.items() if any(parts.values())]

    @contextmanager
    def producer(self, group: str) -> Iterator[KafkaRowProducer]:
        """The one producer of a group; ProducerFenced once another one is opened."""
        with Publisher(self.settings, f"factfold.views.{group}") as publisher, OffsetReader(self.settings) as offsets:
            yield KafkaRowProducer(publisher, offsets, self.settings)


@dataclass(frozen=True)
class KafkaRowProducer:
    """Sends rows, a transaction at a time; keys are placed as Kafka's Java client places them."""

    publisher: Publisher
    offsets: OffsetReader
    settings: Settings

    def send(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """All of them, or none; ProducerFenced, BrokerUnreachable, BrokerRefused."""
        self.publisher.send_rows(rows)
        self.publisher.commit()

    def ends(self, topic: str) -> Mapping[int, int]:
        """Behind the last committed record of each partition; TopicMissing, BrokerUnreachable."""
        return self.offsets.end_offsets([topic])[topic]

    def keys_between(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> set[str]:
        """The keys of committed records; TopicMissing, BrokerUnreachable, RecordsUnreadable."""
        if all(start.get(partition, 0) >= offset for partition, offset in end.items()):
            return set()
        beginning = self.offsets.beginning_offsets([topic])[topic]
        first = {partition: max(start.get(partition, 0), beginning[partition]) for partition in end}
        return {(record.key or b"").decode() for record in read_range(self.settings, topic, start=first, end=end)}
