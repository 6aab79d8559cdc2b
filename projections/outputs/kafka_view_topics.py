"""Topics of views in Kafka: made and checked, and written by one producer a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient

from eventstore.errors import TopicMismatch
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, end_offsets, ensure_topics, quiet, topic_configs
from eventstore.kafka.consumer import read_range
from eventstore.kafka.publisher import Publisher
from eventstore.settings import Settings
from eventstore.topics import TopicSpec
from projections.outputs.view_topics import Row

_LIMITS: Final = ("retention.ms", "retention.bytes")
_UNLIMITED: Final = "-1"


@dataclass(frozen=True)
class KafkaViewTopics:
    """A `projections.outputs.view_topics.ViewTopics`."""

    settings: Settings

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing and return their names; TopicMismatch, BrokerUnreachable, BrokerRefused."""
        made = ensure_topics(self.settings, topics)
        kept = [topic.name for topic in topics if topic.config["cleanup.policy"] == "delete"]
        _require_unlimited(self.settings, kept)
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
        kept = self.offsets.beginning_offsets([topic])[topic]
        first = {partition: max(start.get(partition, 0), kept[partition]) for partition in end}
        return {(record.key or b"").decode() for record in read_range(self.settings, topic, start=first, end=end)}


def _require_unlimited(settings: Settings, topics: Sequence[str]) -> None:
    """Raise TopicMismatch for a topic of which the broker removes what is old."""
    admin = AdminClient(quiet(settings.kafka))
    configs = topic_configs(admin, topics, settings.kafka.bootstrap_servers, DEADLINE_SECONDS)
    for topic, config in configs.items():
        limits = [f"{name}={config[name].value}" for name in _LIMITS if config[name].value != _UNLIMITED]
        for limit in limits:
            raise TopicMismatch(
                f"topic {topic!r} has {limit}, and final results are never removed",
                remedy="set retention.ms=-1 and retention.bytes=-1 on the topic, or use another topic",
                place=topic,
            )
