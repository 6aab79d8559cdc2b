"""What a topic is and how long it keeps its records: its id asked for, its retention bounded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import TopicCollection

from eventstore.errors import TopicMismatch
from eventstore.kafka.admin import DEADLINE_SECONDS, Cluster, cleanup_policies, policy_of
from eventstore.settings import Settings

_LIMITS: Final = ("retention.ms", "retention.bytes")
_TOMBSTONES: Final = ("min.compaction.lag.ms", "delete.retention.ms")


def topic_ids(settings: Settings, topics: Iterable[str], *, deadline: float = DEADLINE_SECONDS) -> dict[str, str]:
    """Return the id of each topic. A topic that was recreated has another. Raises TopicMissing, BrokerUnreachable."""
    cluster, names = Cluster(settings, deadline=deadline), list(topics)
    # The client refuses to describe nothing.
    answers = cluster.admin.describe_topics(TopicCollection(names), request_timeout=deadline) if names else {}
    return {topic: _hex(cluster.result(answer, topic=topic).topic_id) for topic, answer in answers.items()}


@dataclass(frozen=True)
class TombstoneLife:
    """For how long a compacted topic keeps a tombstone: at least ``lag`` until it takes away the row it deletes.

    And ``retention`` from then on (KIP-534).
    """

    lag: timedelta
    retention: timedelta


def tombstone_lives(
    settings: Settings, topics: Iterable[str], *, deadline: float = DEADLINE_SECONDS
) -> dict[str, TombstoneLife]:
    """By topic, those that are not compacted left out; TopicMissing, BrokerUnreachable, BrokerRefused."""
    configs = Cluster(settings, deadline=deadline).configs(topics)
    return {
        topic: TombstoneLife(*(timedelta(milliseconds=int(config[name].value)) for name in _TOMBSTONES))
        for topic, config in configs.items()
        if "compact" in policy_of(config)
    }


def require_unlimited(settings: Settings, topics: Iterable[str], *, deadline: float = DEADLINE_SECONDS) -> None:
    """Raise TopicMismatch for a topic whose old records are deleted; TopicMissing, BrokerUnreachable, BrokerRefused."""
    for topic, config in Cluster(settings, deadline=deadline).configs(topics).items():
        for limit in (f"{name}={config[name].value}" for name in _LIMITS if config[name].value != "-1"):
            raise TopicMismatch(
                f"topic {topic!r} has {limit}: its old records would be deleted",
                remedy="set retention.ms=-1 and retention.bytes=-1 on the topic, or use another topic",
                place=topic,
            )


def limit_retention(
    settings: Settings, topic: str, *, retention_ms: int, deadline: float = DEADLINE_SECONDS
) -> dict[str, str]:
    """Let a topic delete older records, in addition to any compaction. Return the settings it was given.

    Deleted records cannot be restored. Raises TopicMissing, BrokerUnreachable, BrokerRefused.
    """
    policy = cleanup_policies(settings, [topic], deadline=deadline)[topic]
    both = ",".join(sorted({*policy.split(","), "delete"}))
    changes = {"cleanup.policy": both, "retention.ms": str(retention_ms)}
    Cluster(settings, deadline=deadline).set_configs(topic, changes)
    return changes


def _hex(identity: Any) -> str:
    halves = identity.get_most_significant_bits(), identity.get_least_significant_bits()
    return "".join(f"{half & 0xFFFF_FFFF_FFFF_FFFF:016x}" for half in halves)
