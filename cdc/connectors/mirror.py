"""MirrorMaker 2: topics and the offsets of their groups, copied from one Kafka cluster to another.

The connectors run on a Connect cluster of the target. The source connector copies records, the checkpoint connector
the offsets of consumer groups, the heartbeat connector shows that the way is open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cdc.connectors.base import Owned, Value, check_extra, check_unchecked, masked_repr, texts
from cdc.connectors.debezium import BROKERS_DEFAULT
from cdc.connectors.sequences import check_sequences
from cdc.errors import InvalidConnector
from cdc.identifiers import check_connector_name
from cdc.transforms import Transform, compiled

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.topics import TopicSpec

_MIRROR: Final = "org.apache.kafka.connect.mirror"
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_ALIAS = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True, repr=False)
class MirrorConnector:
    """What MirrorMaker's connectors say; use MirrorSource, MirrorCheckpoint and MirrorHeartbeat.

    The two clusters, by an alias of one's choice and their bootstrap servers as the worker sees them; their security
    settings go into `extra` as `source.cluster.…` and `target.cluster.…`, secrets as references unless
    `allow_literal_secrets`. `rename` puts the source's alias and a dot
    before the names of topics, which is what stops two clusters from copying in a circle; it must be the same in
    all connectors of one pair. Topics that MirrorMaker makes have the brokers' default of replicas, or `replicas`.
    """

    JAVA_CLASS: ClassVar[str]
    CATALOGUE: ClassVar[str]
    OWNED: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "connector.class",
            "source.cluster.alias",
            "target.cluster.alias",
            "source.cluster.bootstrap.servers",
            "target.cluster.bootstrap.servers",
            "replication.policy.class",
        }
    )

    name: str
    source_alias: str
    target_alias: str
    source_bootstrap_servers: str
    target_bootstrap_servers: str
    rename: bool = True
    replicas: int = int(BROKERS_DEFAULT)
    tasks: int = 1
    transforms: tuple[Transform, ...] = ()
    extra: Mapping[str, Value] = field(default_factory=dict)
    unchecked: Mapping[str, Value] = field(default_factory=dict)
    allow_literal_secrets: bool = False

    def __post_init__(self) -> None:
        check_sequences(self)
        check_connector_name(self.name)
        self._check_aliases()
        if self.tasks < 1:
            raise InvalidConnector(
                f"connector {self.name!r} has tasks={self.tasks}", remedy="set tasks to 1 or more", place="tasks"
            )
        owned = Owned(self.OWNED | compiled(self.transforms).keys())
        words: Any = {"owned": owned, "connector": self.name, "allow_literal": self.allow_literal_secrets}
        check_extra(self.extra, catalogue=self.CATALOGUE, **words)
        check_unchecked(self.unchecked, **words)

    @property
    def has_heartbeats(self) -> bool:
        """Whether it shows that it works though nothing happens at its source: there may be nothing to copy."""
        return False

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """None: MirrorMaker makes its topics after those of the source."""
        return ()

    def config(self) -> dict[str, str]:
        """Return the configuration for Kafka Connect, all values as text."""
        policy = "DefaultReplicationPolicy" if self.rename else "IdentityReplicationPolicy"
        return {
            "connector.class": self.JAVA_CLASS,
            "tasks.max": str(self.tasks),
            "source.cluster.alias": self.source_alias,
            "target.cluster.alias": self.target_alias,
            "source.cluster.bootstrap.servers": self.source_bootstrap_servers,
            "target.cluster.bootstrap.servers": self.target_bootstrap_servers,
            "replication.policy.class": f"{_MIRROR}.{policy}",
            # Records are bytes; a worker's own converters would write base64 of them.
            **{f"{part}.converter": _BYTES for part in ("key", "value", "header")},
            **self._work(),
            **compiled(self.transforms),
            **texts(self.extra),
            **texts(self.unchecked),
        }

    def check_source(self, engine: Engine) -> None:
        """Refuse: there is no database to look into."""
        raise InvalidConnector(
            f"connector {self.name!r} copies from Kafka to Kafka, and has no database to look into",
            remedy="apply it without source",
            place=self.name,
        )

    def _work(self) -> dict[str, str]:
        raise NotImplementedError

    def _check_aliases(self) -> None:
        for alias in (self.source_alias, self.target_alias):
            if _ALIAS.fullmatch(alias) is None or self.source_alias == self.target_alias:
                raise InvalidConnector(
                    f"connector {self.name!r} has the cluster aliases "
                    f"{self.source_alias[:80]!r} and {self.target_alias[:80]!r}",
                    remedy="use two different names of letters, digits, dashes and underscores",
                    place=self.name,
                )

    def __repr__(self) -> str:
        return masked_repr(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class MirrorSource(MirrorConnector):
    """Copies topics from one Kafka cluster to another.

    Attributes:
        topics: Regular expressions in Java's dialect that whole names of topics match.
        exactly_once: Copy each committed record once, even if tasks die. Otherwise at least once.
        refresh_seconds: How often new topics and partitions are looked for.
        offset_lag: The records between two points at which both clusters' offsets are known. A group that moves may
            read so many twice. 0 makes a point for each record.

    Examples:
        >>> MirrorSource(name="berlin_topics", topics=("shop[.].*",), source_alias="berlin", target_alias="paris",
        ...              source_bootstrap_servers="kafka.berlin:9092", target_bootstrap_servers="kafka.paris:9092")
    """

    JAVA_CLASS = f"{_MIRROR}.MirrorSourceConnector"
    CATALOGUE = "mirror_source_keys.tsv"
    OWNED = MirrorConnector.OWNED | {
        "topics",
        "replication.factor",
        "exactly.once.support",
        "source.consumer.isolation.level",
        "refresh.topics.interval.seconds",
        "offset.lag.max",
        "offset-syncs.topic.replication.factor",
    }

    topics: tuple[str, ...]
    exactly_once: bool = True
    refresh_seconds: int = 30
    offset_lag: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_patterns(self.topics, "topics", self.name)

    def _work(self) -> dict[str, str]:
        return {
            "topics": ",".join(self.topics),
            "replication.factor": str(self.replicas),
            "offset-syncs.topic.replication.factor": str(self.replicas),
            "refresh.topics.interval.seconds": str(self.refresh_seconds),
            "offset.lag.max": str(self.offset_lag),
            # Rights are each cluster's own affair; where there are none, copying them fills the log with errors.
            "sync.topic.acls.enabled": "false",
            "exactly.once.support": "required" if self.exactly_once else "requested",
            # Asked for by exactly-once, and right without: an aborted record is none.
            "source.consumer.isolation.level": "read_committed",
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class MirrorCheckpoint(MirrorConnector):
    """Copies the committed offsets of groups, translated to the target's, for groups without members at the target.

    It needs a MirrorSource of the same pair, and knows only the points that this one notes after both have started:
    start both connectors before a move. A group never gets an offset beyond its place. It may get an earlier one, and
    then reads some records twice.

    Attributes:
        groups: Regular expressions that whole names of groups match.
        interval_seconds: How often offsets are copied.
        refresh_seconds: How often new groups are looked for.

    Examples:
        >>> MirrorCheckpoint(name="berlin_groups", groups=("billing",), source_alias="berlin", target_alias="paris",
        ...                  source_bootstrap_servers="kafka.berlin:9092", target_bootstrap_servers="kafka.paris:9092")
    """

    JAVA_CLASS = f"{_MIRROR}.MirrorCheckpointConnector"
    CATALOGUE = "mirror_checkpoint_keys.tsv"
    OWNED = MirrorConnector.OWNED | {
        "groups",
        "checkpoints.topic.replication.factor",
        "sync.group.offsets.enabled",
        "sync.group.offsets.interval.seconds",
        "emit.checkpoints.interval.seconds",
        "refresh.groups.interval.seconds",
    }

    groups: tuple[str, ...]
    interval_seconds: int = 5
    refresh_seconds: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_patterns(self.groups, "groups", self.name)

    def _work(self) -> dict[str, str]:
        return {
            "groups": ",".join(self.groups),
            "checkpoints.topic.replication.factor": str(self.replicas),
            # Off by default: then there are only checkpoints to read, and groups begin from the start.
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": str(self.interval_seconds),
            "emit.checkpoints.interval.seconds": str(self.interval_seconds),
            "refresh.groups.interval.seconds": str(self.refresh_seconds),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class MirrorHeartbeat(MirrorConnector):
    """Writes a record a second (or every `interval_seconds`) to the topic `heartbeats` of the target.

    Examples:
        >>> MirrorHeartbeat(name="berlin_heartbeat", source_alias="berlin", target_alias="paris",
        ...                 source_bootstrap_servers="kafka.berlin:9092", target_bootstrap_servers="kafka.paris:9092")
    """

    JAVA_CLASS = f"{_MIRROR}.MirrorHeartbeatConnector"
    CATALOGUE = "mirror_heartbeat_keys.tsv"
    OWNED = MirrorConnector.OWNED | {"emit.heartbeats.interval.seconds", "heartbeats.topic.replication.factor"}

    interval_seconds: int = 1

    def _work(self) -> dict[str, str]:
        return {
            "emit.heartbeats.interval.seconds": str(self.interval_seconds),
            "heartbeats.topic.replication.factor": str(self.replicas),
        }


def _check_patterns(patterns: tuple[str, ...], attribute: str, connector: str) -> None:
    if not patterns or any("," in pattern or not pattern.strip() for pattern in patterns):
        raise InvalidConnector(
            f"connector {connector!r} names no {attribute}, or one with a comma, at which MirrorMaker would cut it",
            remedy=f"name at least one in {attribute}, each without commas",
            place=attribute,
        )
