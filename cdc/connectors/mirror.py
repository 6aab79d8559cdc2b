"""MirrorMaker 2: topics and the offsets of their groups, copied from one Kafka cluster to another.

The connectors run on a Connect cluster of the target. The source connector copies records, the checkpoint connector
the offsets of consumer groups, the heartbeat connector shows that the way is open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.connectors.base import Owned
from cdc.connectors.debezium import BROKERS_DEFAULT
from cdc.connectors.declared import Connector
from cdc.errors import InvalidConnector

if TYPE_CHECKING:
    from sqlalchemy import Engine

_MIRROR: Final = "org.apache.kafka.connect.mirror"
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_ALIAS = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True, repr=False)
class MirrorConnector(Connector):
    """What MirrorMaker's connectors say; use MirrorSource, MirrorCheckpoint and MirrorHeartbeat.

    The two clusters, by an alias of one's choice and their bootstrap servers as the worker sees them; their security
    settings go into `extra` as `source.cluster.…` and `target.cluster.…`, secrets as references unless
    `allow_literal_secrets`. `rename` puts the source's alias and a dot
    before the names of topics, which is what stops two clusters from copying in a circle; it must be the same in
    all connectors of one pair. Topics that MirrorMaker makes have the brokers' default of replicas, or `replicas`.
    """

    source_alias: str
    target_alias: str
    source_bootstrap_servers: str
    target_bootstrap_servers: str
    rename: bool = True
    replicas: int = int(BROKERS_DEFAULT)
    tasks: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_aliases()
        self._at_least("tasks", 1)

    def _settings(self) -> dict[str, str]:
        return {
            "tasks.max": str(self.tasks),
            # Records are bytes; a worker's own converters would write base64 of them.
            **{f"{part}.converter": _BYTES for part in ("key", "value", "header")},
            **self._of_fields(),
        }

    def _of_fields(self) -> dict[str, str]:
        policy = "DefaultReplicationPolicy" if self.rename else "IdentityReplicationPolicy"
        return {
            "source.cluster.alias": self.source_alias,
            "target.cluster.alias": self.target_alias,
            "source.cluster.bootstrap.servers": self.source_bootstrap_servers,
            "target.cluster.bootstrap.servers": self.target_bootstrap_servers,
            "replication.policy.class": f"{_MIRROR}.{policy}",
        }

    def _owned(self) -> Owned:
        owned = super()._owned()
        return Owned(owned.keys | self._of_fields().keys(), owned.beginnings)

    def check_source(self, engine: Engine) -> None:
        """Refuse: there is no database to look into."""
        raise InvalidConnector(
            f"connector {self.name!r} copies from Kafka to Kafka, and has no database to look into",
            remedy="apply it without source",
            place=self.name,
        )

    def _check_aliases(self) -> None:
        for alias in (self.source_alias, self.target_alias):
            if _ALIAS.fullmatch(alias) is None or self.source_alias == self.target_alias:
                raise InvalidConnector(
                    f"connector {self.name!r} has the cluster aliases "
                    f"{self.source_alias[:80]!r} and {self.target_alias[:80]!r}",
                    remedy="use two different names of letters, digits, dashes and underscores",
                    place=self.name,
                )


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

    topics: tuple[str, ...]
    exactly_once: bool = True
    refresh_seconds: int = 30
    offset_lag: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_patterns(self.topics, "topics", self.name)

    def _of_fields(self) -> dict[str, str]:
        return {
            **super()._of_fields(),
            "topics": ",".join(self.topics),
            "replication.factor": str(self.replicas),
            "offset-syncs.topic.replication.factor": str(self.replicas),
            "refresh.topics.interval.seconds": str(self.refresh_seconds),
            "offset.lag.max": str(self.offset_lag),
            "exactly.once.support": "required" if self.exactly_once else "requested",
            # Asked for by exactly-once, and right without: an aborted record is none.
            "source.consumer.isolation.level": "read_committed",
        }

    def _settings(self) -> dict[str, str]:
        # Rights are each cluster's own affair; where there are none, copying them fills the log with errors.
        return {**super()._settings(), "sync.topic.acls.enabled": "false"}


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

    groups: tuple[str, ...]
    interval_seconds: int = 5
    refresh_seconds: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_patterns(self.groups, "groups", self.name)

    def _of_fields(self) -> dict[str, str]:
        return {
            **super()._of_fields(),
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

    interval_seconds: int = 1

    def _of_fields(self) -> dict[str, str]:
        return {
            **super()._of_fields(),
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
