"""Topics made and checked, offsets asked for; every call ends before its deadline.

What a topic is and how long it keeps its records: its id asked for, its retention bounded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import stamina
from confluent_kafka import OFFSET_END, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not marked so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from eventstore.closing import Closing
from eventstore.errors import (
    BrokerRefused,
    BrokerUnreachable,
    FactfoldError,
    ProducerFenced,
    TopicMismatch,
    TopicMissing,
)
from eventstore.settings import KafkaSettings, Settings
from eventstore.topics import TopicSpec

_MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
# While a partition moves to another leader, or its broker is back from a restart: the next question finds the new one.
_MOVING: Final = frozenset(
    {"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH"}
)
# Another producer was opened under the same transactional id.
_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

Offsets = dict[str, dict[int, int]]

DEADLINE_SECONDS: Final = 10.0
# Partition counts grow only by hand; asking twice a minute keeps `latest` at one round trip.
_METADATA_SECONDS: Final = 30.0
_CHECKED_CONFIG: Final = "cleanup.policy"
_TOPICS_OWN: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # said of the topic itself
_UNREACHABLE: Final = frozenset(
    {
        "_TRANSPORT",
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT_QUEUE",
        "_DESTROY",
    }
)


class Cluster:
    """The brokers of a cluster, asked as an administrator; every call ends before the deadline.

    TopicMissing, BrokerUnreachable, BrokerRefused.
    """

    def __init__(self, settings: Settings, *, deadline: float = DEADLINE_SECONDS) -> None:
        self.admin = AdminClient(quiet(settings.kafka))
        self.servers, self.deadline = settings.kafka.bootstrap_servers, deadline

    def result(self, answer: Future[Any], *, topic: str | None = None) -> Any:
        """Return what a broker answers."""
        with typed_errors(self.servers, topic=topic):
            return answer.result(self.deadline + 1)

    def topics(self) -> Mapping[str, Any]:
        """Return the topics that exist, by name."""
        with typed_errors(self.servers):
            return self.admin.list_topics(timeout=self.deadline).topics

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition count of each topic."""
        known, names = self.topics(), list(topics)
        for topic in names:
            if topic not in known or known[topic].error is not None:
                raise topic_missing(topic, self.servers)
        return {topic: len(known[topic].partitions) for topic in names}

    def configs(self, names: Iterable[str], kind: ResourceType = ResourceType.TOPIC) -> dict[str, Mapping[str, Any]]:
        """Return the settings of each topic, or of each resource of another kind."""
        resources = [ConfigResource(kind, name) for name in names]
        # The client refuses to describe nothing.
        answers = self.admin.describe_configs(resources, request_timeout=self.deadline) if resources else {}
        return {one.name: self.result(answer, topic=_topic_of(one)) for one, answer in answers.items()}

    def set_configs(self, name: str, values: Mapping[str, str], kind: ResourceType = ResourceType.TOPIC) -> None:
        """Give a topic, or a resource of another kind, these settings, and leave it its others."""
        entries = [
            ConfigEntry(one, value, incremental_operation=AlterConfigOpType.SET) for one, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        answers = self.admin.incremental_alter_configs([resource], request_timeout=self.deadline)
        for answer in answers.values():
            self.result(answer, topic=_topic_of(resource))


def _topic_of(resource: ConfigResource) -> str | None:
    return resource.name if resource.restype == ResourceType.TOPIC else None


class OffsetReader(Closing):
    """Asks a broker for offsets again and again over one connection; close it, or use it in `with`.

    Ends are those of committed records (the last stable offset), as a read-committed consumer sees them.
    """

    def __init__(self, settings: Settings, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._cluster = Cluster(settings, deadline=deadline)
        self._partitions: dict[str, int] = {}
        self._asked_at = 0.0

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition count of each topic; TopicMissing, BrokerUnreachable."""
        names = list(topics)
        stale = time.monotonic() - self._asked_at > _METADATA_SECONDS
        if stale or any(topic not in self._partitions for topic in names):
            self._partitions |= self._cluster.partition_counts(names)
            self._asked_at = time.monotonic()
        return {topic: self._partitions[topic] for topic in names}

    def existing(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics that exist; BrokerUnreachable."""
        known = self._cluster.topics()
        return [topic for topic in topics if topic in known]

    def names(self) -> list[str]:
        """Return the names of all topics; BrokerUnreachable."""
        return sorted(self._cluster.topics())

    def end_offsets(self, topics: Iterable[str], *, committed: bool = True) -> Offsets:
        """Return, by topic and partition, the offset after the last committed record, or after the last of all."""
        return self._offsets(topics, OffsetSpec.latest(), committed=committed)  # type: ignore[no-untyped-call]

    def beginning_offsets(self, topics: Iterable[str]) -> Offsets:
        """Return, by topic and partition, the first offset that still exists."""
        return self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def offsets_at(self, moment: datetime, topics: Iterable[str]) -> Offsets:
        """Return, by topic and partition, the offset of the first record not older than that, or the end."""
        ends = self.end_offsets(topics)
        spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
        offsets = self._offsets(topics, spec, least=OFFSET_END)
        return {t: {p: o if o >= 0 else ends[t][p] for p, o in offsets[t].items()} for t in ends}

    def close(self) -> None:
        """Let the connection go."""
        del self._cluster

    def _offsets(self, topics: Iterable[str], spec: OffsetSpec, *, committed: bool = True, least: int = 0) -> Offsets:
        counts = self.partitions(topics)
        asked = {TopicPartition(t, p): spec for t, count in counts.items() for p in range(count)}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        offsets = _patient(self._cluster)(_is_moving, self._ask_offsets, asked, level, least)
        return {topic: offsets.get(topic, {}) for topic in counts}

    def _ask_offsets(self, asked: dict[TopicPartition, OffsetSpec], level: IsolationLevel, least: int) -> Offsets:
        cluster = self._cluster
        answers = cluster.admin.list_offsets(asked, isolation_level=level, request_timeout=cluster.deadline)
        offsets: Offsets = {}
        for asked_for, answer in answers.items():
            offset = cluster.result(answer, topic=asked_for.topic).offset
            if offset < least:
                # What the client says of a broker that was killed while it was asked: no error, and no offset.
                raise broker_unreachable(cluster.servers, f"no broker returns the offsets of {asked_for.topic!r}")
            offsets.setdefault(asked_for.topic, {})[asked_for.partition] = offset
        return offsets


def _patient(cluster: Cluster) -> stamina.RetryingCaller:
    """What asks again until the deadline of a cluster."""
    return stamina.RetryingCaller(
        attempts=None, timeout=cluster.deadline, wait_initial=0.02, wait_max=0.5, wait_jitter=0.05
    )


def _is_moving(error: Exception) -> bool:
    """A topic that was just created, or whose broker just stopped: another broker knows its leader."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].name() in _MOVING


def end_offsets(settings: Settings, topics: Iterable[str]) -> Offsets:
    """Return, by topic and partition, the offset after the last committed record; asks once."""
    with OffsetReader(settings) as reader:
        return reader.end_offsets(topics)


def cleanup_policies(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """Return the cleanup.policy of each topic; TopicMissing, BrokerUnreachable, BrokerRefused."""
    configs = Cluster(settings).configs(topics)
    return {topic: policy_of(config) for topic, config in configs.items()}


@dataclass(frozen=True, slots=True)
class TopicsCompared:
    """The missing topics, and a TopicMismatch for each topic that differs from its specification."""

    missing: Sequence[str]
    mismatches: Sequence[TopicMismatch]


def compare_topics(
    settings: Settings, specs: Iterable[TopicSpec], *, deadline: float = DEADLINE_SECONDS
) -> TopicsCompared:
    """Say which topics are missing, and which have other partitions or another cleanup policy; changes nothing.

    BrokerUnreachable, BrokerRefused.
    """
    cluster, required = Cluster(settings, deadline=deadline), list(specs)
    known = cluster.topics()
    present = [spec for spec in required if spec.name in known]
    counts = {spec.name: len(known[spec.name].partitions) for spec in present}
    mismatches = [*_other_partitions(counts, present), *_other_policies(cluster, present)]
    return TopicsCompared([spec.name for spec in required if spec.name not in known], mismatches)


def ensure_topics(settings: Settings, specs: Iterable[TopicSpec], *, deadline: float = DEADLINE_SECONDS) -> list[str]:
    """Create the topics that are missing, and check the others. Return the names of the created ones.

    Raises:
        TopicMismatch: A topic has another partition count or cleanup policy.
        BrokerUnreachable: No broker answered within `deadline` seconds.
        BrokerRefused: A broker refused to create a topic.

    Examples:
        >>> ensure_topics(Settings(), [changelog_topic("shop.public.customers", partitions=4)])
        ['shop.public.customers']
    """
    required = list(specs)
    compared = compare_topics(settings, required, deadline=deadline)
    for mismatch in compared.mismatches:
        raise mismatch
    missing = [spec for spec in required if spec.name in compared.missing]
    return _create(Cluster(settings, deadline=deadline), missing)


def _create(cluster: Cluster, specs: list[TopicSpec]) -> list[str]:
    if not specs:
        return []
    made = cluster.admin.create_topics([_new_topic(spec) for spec in specs], request_timeout=cluster.deadline)
    for name, future in made.items():
        with typed_errors(cluster.servers, topic=name):
            _ignore_existing(future, cluster.deadline)
    # A broker learns of a topic behind the controller that made it, on a busy machine long after that has answered.
    _patient(cluster)(TopicMissing, cluster.partition_counts, made)
    return list(made)


def _new_topic(spec: TopicSpec) -> NewTopic:
    replication = -1 if spec.replication is None else spec.replication
    return NewTopic(spec.name, spec.partitions, replication, config=dict(spec.config))


def _ignore_existing(future: Future[None], deadline: float) -> None:
    try:
        future.result(deadline + 1)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def _other_partitions(counts: Mapping[str, int], specs: list[TopicSpec]) -> Iterator[TopicMismatch]:
    for spec in specs:
        if counts[spec.name] != spec.partitions:
            yield TopicMismatch(
                f"topic {spec.name!r} has {counts[spec.name]} partitions, {spec.partitions} are required",
                remedy="partitions are fixed for life: use the number it has, or a topic of another name. An event "
                "topic may be deleted, and published again from its store",
                place=spec.name,
            )


def _other_policies(cluster: Cluster, specs: list[TopicSpec]) -> Iterator[TopicMismatch]:
    checked = {spec.name: spec.config[_CHECKED_CONFIG] for spec in specs if _CHECKED_CONFIG in spec.config}
    for topic, config in cluster.configs(checked).items():
        actual, required = policy_of(config), checked[topic]
        if actual != required and not (required == "compact" and _is_released(config)):
            yield TopicMismatch(
                f"topic {topic!r} has cleanup.policy={actual}, {required} is required",
                remedy=f"set cleanup.policy={required} on the topic before it is cleaned, or use another topic",
                place=topic,
            )


def _is_released(config: Mapping[str, Any]) -> bool:
    """Whether a compacted topic deletes what is old after a time of its own: as `limit_retention` leaves it.

    Without such a time the broker's default applies, usually a week, and losing events was not a choice.
    """
    return policy_of(config) == "compact,delete" and bool(config["retention.ms"].source == _TOPICS_OWN)


def policy_of(config: Mapping[str, Any]) -> str:
    """Return what a topic's cleanup.policy is: Kafka's own list in one order, whatever order it was written in."""
    return ",".join(sorted(str(config[_CHECKED_CONFIG].value).replace(" ", "").split(",")))


def quiet(kafka: KafkaSettings) -> dict[str, Any]:
    """Keep librdkafka from printing to stderr: what it has to say arrives as a typed error."""
    return {**kafka.librdkafka(), "log_level": 0}


@contextmanager
def typed_errors(servers: str, *, topic: str | None = None) -> Iterator[None]:
    """Turn librdkafka's exceptions into KafkaErrors with a remedy."""
    try:
        yield
    except KafkaException as error:
        raise _typed(error.args[0], servers, topic) from error
    except TimeoutError as error:
        raise broker_unreachable(servers, "no answer before the deadline") from error


def _typed(code: Any, servers: str, topic: str | None) -> FactfoldError:
    if code.name() in _UNREACHABLE:
        return broker_unreachable(servers, code.str())
    if code.name() in _MISSING:
        return topic_missing(topic or "?", servers)
    if code.name() in _FENCED:
        return ProducerFenced(
            "another producer has taken over, and this one is shut out",
            remedy="leave the work to the other one, or stop it and start this one again",
            place=servers,
        )
    return BrokerRefused(
        f"Kafka refused: {code.str()}",
        remedy="check the credentials, the access rights and the settings of this client",
        place=servers if topic is None else f"{servers} {topic}",
    )


def broker_unreachable(servers: str, why: str) -> BrokerUnreachable:
    """Build the error for brokers that do not answer."""
    return BrokerUnreachable(
        f"no Kafka broker answers at {servers}: {why}",
        remedy="start the broker, or set FACTFOLD_KAFKA__BOOTSTRAP_SERVERS and its security settings",
        place=servers,
    )


def topic_missing(topic: str, servers: str) -> TopicMissing:
    """Build the error for a topic that does not exist."""
    return TopicMissing(
        f"topic {topic!r} does not exist",
        remedy="start what creates it: factfold cdc apply for a connector's topic, "
        "factfold branches run for a branch's",
        place=servers,
    )


_LIMITS: Final = ("retention.ms", "retention.bytes")
_TOMBSTONES: Final = ("min.compaction.lag.ms", "delete.retention.ms")


def topic_ids(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic. A topic that was recreated has another. Raises TopicMissing, BrokerUnreachable."""
    cluster, names = Cluster(settings), list(topics)
    # The client refuses to describe nothing.
    answers = cluster.admin.describe_topics(TopicCollection(names), request_timeout=cluster.deadline) if names else {}
    return {topic: _hex(cluster.result(answer, topic=topic).topic_id) for topic, answer in answers.items()}


@dataclass(frozen=True)
class TombstoneLife:
    """For how long a compacted topic keeps a tombstone: at least ``lag`` until it takes away the row it deletes.

    And ``retention`` from then on (KIP-534).
    """

    lag: timedelta
    retention: timedelta


def tombstone_lives(settings: Settings, topics: Iterable[str]) -> dict[str, TombstoneLife]:
    """By topic, those that are not compacted left out; TopicMissing, BrokerUnreachable, BrokerRefused."""
    configs = Cluster(settings).configs(topics)
    return {
        topic: TombstoneLife(*(timedelta(milliseconds=int(config[name].value)) for name in _TOMBSTONES))
        for topic, config in configs.items()
        if "compact" in policy_of(config)
    }


def require_unlimited(settings: Settings, topics: Iterable[str]) -> None:
    """Raise TopicMismatch for a topic whose old records are deleted; TopicMissing, BrokerUnreachable, BrokerRefused."""
    for topic, config in Cluster(settings).configs(topics).items():
        for limit in (f"{name}={config[name].value}" for name in _LIMITS if config[name].value != "-1"):
            raise TopicMismatch(
                f"topic {topic!r} has {limit}: its old records would be deleted",
                remedy="set retention.ms=-1 and retention.bytes=-1 on the topic, or use another topic",
                place=topic,
            )


def limit_retention(settings: Settings, topic: str, *, retention_ms: int) -> dict[str, str]:
    """Let a topic delete older records, in addition to any compaction. Return the settings it was given.

    Deleted records cannot be restored. Raises TopicMissing, BrokerUnreachable, BrokerRefused.
    """
    policy = cleanup_policies(settings, [topic])[topic]
    both = ",".join(sorted({*policy.split(","), "delete"}))
    changes = {"cleanup.policy": both, "retention.ms": str(retention_ms)}
    Cluster(settings).set_configs(topic, changes)
    return changes


def _hex(identity: Any) -> str:
    halves = identity.get_most_significant_bits(), identity.get_least_significant_bits()
    return "".join(f"{half & 0xFFFF_FFFF_FFFF_FFFF:016x}" for half in halves)
