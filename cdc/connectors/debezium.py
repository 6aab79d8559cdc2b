"""What every Debezium source says, whatever its database: to Connect, to its topics, to its readers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import SecretStr

from cdc.connectors.base import Owned, Value, check_extra, check_unchecked, masked_repr, texts
from cdc.connectors.secrets import is_reference, refuse_literal, revealed
from cdc.connectors.sequences import check_sequence, check_sequences
from cdc.errors import InvalidConnector
from cdc.identifiers import check_connector_name, check_host, check_topic_prefix
from cdc.transforms import Transform, compiled

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.topics import TopicSpec

# What a replication factor is left to: the broker's default.
BROKERS_DEFAULT: Final = "-1"
# The topics of heartbeats, as a regular expression.
HEARTBEATS: Final = "__debezium-heartbeat.*"
_PORTS: Final = range(1, 1 << 16)


@dataclass(frozen=True, kw_only=True, repr=False)
class DebeziumConnector:
    """What every Debezium source says; use PostgresSource, MySqlSource, …, OutboxSource.

    `extra` overrides any setting of the connector and of Connect that has no field here, by its own name. `unchecked`
    passes settings that our lists of names do not know, and is the way around what a declaration refuses of the others:
    it comes last, and its values are not checked, not even whether a reader can read the result.
    `transforms` work in their order, after the connector's own. `allow_literal_secrets` lets secrets stand in clear.
    Errors: InvalidConnector and its kinds, InvalidIdentifier.
    """

    JAVA_CLASS: ClassVar[str]
    CATALOGUE: ClassVar[str]
    DATABASE: ClassVar[str]
    OWNED: ClassVar[frozenset[str]] = frozenset({"name", "connector.class", "topic.prefix", "heartbeat.interval.ms"})

    name: str
    topic_prefix: str
    partitions: int = 4
    heartbeat_interval_ms: int = 1000
    transforms: tuple[Transform, ...] = ()
    extra: Mapping[str, Value] = field(default_factory=dict)
    unchecked: Mapping[str, Value] = field(default_factory=dict)
    allow_literal_secrets: bool = False

    def __post_init__(self) -> None:
        check_sequences(self)
        check_connector_name(self.name)
        check_topic_prefix(self.topic_prefix)
        for attribute in ("heartbeat_interval_ms", "partitions"):
            self._at_least(attribute, 1)
        words: Any = {"owned": self._owned(), "connector": self.name, "allow_literal": self.allow_literal_secrets}
        check_extra(self.extra, catalogue=self.CATALOGUE, **words)
        check_unchecked(self.unchecked, **words)

    @property
    def has_heartbeats(self) -> bool:
        """Whether it shows that it works though nothing happens at its source: it does."""
        return True

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """How the topics that the declaration names have to be, for `ensure_topics`."""
        return ()

    def config(self) -> dict[str, str]:
        """Return the configuration for Kafka Connect, all values as text."""
        return {**self._declared(), **texts(self.unchecked)}

    def _declared(self) -> dict[str, str]:
        return {
            "connector.class": self.JAVA_CLASS,
            "tasks.max": "1",
            "topic.prefix": self.topic_prefix,
            **self._connection(),
            **self._working(),
            **self._capture(),
            **self._output(),
            **self._transforms(),
            **texts(self.extra),
        }

    def check_source(self, engine: Engine) -> None:
        """Refuse: Factfold looks into PostgreSQL sources only, and `apply` without `source` looks into none."""
        raise InvalidConnector(
            f"connector {self.name!r} captures from {self.DATABASE}, and Factfold looks into PostgreSQL only",
            remedy="apply it without source. The database's own checks are in the how-to page declare-connectors",
            place=self.name,
        )

    def _working(self) -> dict[str, str]:
        return {
            "heartbeat.interval.ms": str(self.heartbeat_interval_ms),
            "snapshot.mode": "initial",
            # Debezium's context headers would say in 150 bytes a record what topic and value say already.
            "extended.headers.enabled": "false",
            # An idle task sleeps this long between looks at its queue: the default of 500 adds a quarter of a
            # second to the average change; 20 cost 50 wake-ups a second.
            "poll.interval.ms": "20",
            # Records and their source offset in one Kafka transaction: a killed worker repeats nothing.
            "exactly.once.support": "required",
        }

    def _connection(self) -> dict[str, str]:
        raise NotImplementedError

    def _capture(self) -> dict[str, str]:
        raise NotImplementedError

    def _output(self) -> dict[str, str]:
        raise NotImplementedError

    def _own_transforms(self) -> tuple[Transform, ...]:
        return ()

    def _transforms(self) -> dict[str, str]:
        return compiled(self.transforms, own=self._own_transforms())

    def _owned(self) -> Owned:
        # Of its own transforms every setting: one that is not written here could still turn them around.
        own = tuple(f"{kind}.{one.name}." for one in self._own_transforms() for kind in ("transforms", "predicates"))
        return Owned(self.OWNED | self._transforms().keys(), own)

    def _heartbeat_group(self) -> tuple[str, dict[str, str]]:
        return HEARTBEATS, {"partitions": "1", "cleanup.policy": "compact"}

    def _settle(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)

    def _at_least(self, attribute: str, least: int) -> None:
        if getattr(self, attribute) < least:
            raise InvalidConnector(
                f"connector {self.name!r} has {attribute}={getattr(self, attribute)}",
                remedy=f"set {attribute} to {least} or more",
                place=attribute,
            )

    def _some(self, attribute: str, what: str) -> None:
        check_sequence(self, attribute)
        if not getattr(self, attribute):
            raise InvalidConnector(
                f"connector {self.name!r} captures no {what}",
                remedy=f"name at least one in {attribute}",
                place=attribute,
            )

    def __repr__(self) -> str:
        return masked_repr(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class LoginConnector(DebeziumConnector):
    """A source that is reached at a host and a port by a user with a password.

    `password` is a reference to a config provider (`${file:/path:key}`, see cdc.connectors.secrets); a literal is
    refused unless `allow_literal_secrets`.
    """

    OWNED = DebeziumConnector.OWNED | {"database.hostname", "database.port", "database.user", "database.password"}

    host: str
    port: int
    user: str
    password: str | SecretStr = field(repr=False)

    def __post_init__(self) -> None:
        if not self.allow_literal_secrets:
            refuse_literal("database.password", self.password, connector=self.name, place="password")
        self._settle("password", SecretStr(revealed(self.password)))
        if isinstance(self.port, bool) or not isinstance(self.port, int) or self.port not in _PORTS:
            raise InvalidConnector(
                f"connector {self.name!r} has no valid port", remedy="use a number from 1 to 65535", place="port"
            )
        if not is_reference(self.host):
            check_host(self.host)
        super().__post_init__()

    def _connection(self) -> dict[str, str]:
        return {
            "database.hostname": self.host,
            "database.port": str(self.port),
            "database.user": self.user,
            "database.password": revealed(self.password),
        }


def exactly(names: Iterable[str]) -> str:
    """Return the regular expression, in Java's dialect too, that matches these names and nothing else."""
    return "|".join(re.escape(name) for name in names)
