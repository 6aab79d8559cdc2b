"""Topics of an event store made before its connector writes to them, with their partitions fixed for life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.topics import TopicSpec, event_topic, schemas_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventstore.settings import Settings


def prepare_topics(settings: Settings, categories: Iterable[tuple[str, int]]) -> list[str]:
    """Create the schemas topic and one event topic per (topic, partitions); return the names created.

    Existing topics are checked: TopicMismatch where one has other partitions or another policy.
    BrokerUnreachable, BrokerRefused.
    """
    from eventstore.kafka.admin import ensure_topics

    return ensure_topics(settings, topic_specs(categories))


def topic_specs(categories: Iterable[tuple[str, int]]) -> list[TopicSpec]:
    """Describe the topics as they have to be, the schemas topic first."""
    return [schemas_topic(), *(event_topic(name, partitions=count) for name, count in categories)]
