"""View topics in Kafka: made and checked, and written by one producer a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from eventstore.kafka.admin import end_offsets, ensure_topics
from eventstore.kafka.publisher import Publisher
from eventstore.settings import Settings
from eventstore.topics import TopicSpec
from projections.outputs.view_topics import Row


@dataclass(frozen=True)
class KafkaViewTopics:
    """A `projections.outputs.view_topics.ViewTopics`."""

    settings: Settings

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing and return their names; TopicMismatch, BrokerUnreachable, BrokerRefused."""
        return ensure_topics(self.settings, topics)

    def holding(self, topics: Sequence[str]) -> list[str]:
        """Those that hold, or held, any record."""
        ends = end_offsets(self.settings, topics) if topics else {}
        return [topic for topic, parts in ends.items() if any(parts.values())]

    @contextmanager
    def producer(self, group: str) -> Iterator[KafkaRowProducer]:
        """The one producer of a group; ProducerFenced once another one is opened."""
        with Publisher(self.settings, f"factfold.views.{group}") as publisher:
            yield KafkaRowProducer(publisher)


@dataclass(frozen=True)
class KafkaRowProducer:
    """Sends rows, a transaction at a time; keys are placed as Kafka's Java client places them."""

    publisher: Publisher

    def send(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """All of them, or none; ProducerFenced, BrokerUnreachable, BrokerRefused."""
        self.publisher.send_rows(rows)
        self.publisher.commit()
