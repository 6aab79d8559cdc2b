"""What every Debezium source says, whatever its database: to Connect, to its topics, to its readers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import SecretStr

from cdc.connectors.declared import DeclaredConnector
from cdc.connectors.secrets import is_reference, refuse_literal, revealed
from cdc.errors import InvalidConnector
from cdc.identifiers import check_host, check_topic_prefix

if TYPE_CHECKING:
    from sqlalchemy import Engine

# What a replication factor is left to: the broker's default.
BROKERS_DEFAULT: Final = "-1"
# The topics of heartbeats, as a regular expression.
HEARTBEATS: Final = "__debezium-heartbeat.*"
_PORTS: Final = range(1, 1 << 16)


@dataclass(frozen=True, kw_only=True, repr=False)
class DebeziumConnector(DeclaredConnector):
    """What every Debezium source says; use PostgresSource, MySqlSource, …, OutboxSource. See DeclaredConnector."""

    DATABASE: ClassVar[str]
    OWNED = DeclaredConnector.OWNED | {"topic.prefix", "heartbeat.interval.ms"}

    topic_prefix: str
    partitions: int = 4
    heartbeat_interval_ms: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_topic_prefix(self.topic_prefix)
        for attribute in ("heartbeat_interval_ms", "partitions"):
            self._at_least(attribute, 1)

    @property
    def has_heartbeats(self) -> bool:
        """Whether it shows that it works though nothing happens at its source: it does."""
        return True

    def check_source(self, engine: Engine) -> None:
        """Refuse: Factfold looks into PostgreSQL only, and `apply_connector` without `source` looks into none."""
        raise InvalidConnector(
            f"connector {self.name!r} captures from {self.DATABASE}, and Factfold looks into PostgreSQL only",
            remedy="apply it without source. The database's own checks are in the how-to page declare-connectors",
            place=self.name,
        )

    def _settings(self) -> dict[str, str]:
        return {
            "tasks.max": "1",
            "topic.prefix": self.topic_prefix,
            **self._connection(),
            **self._working(),
            **self._capture(),
            **self._output(),
        }

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

    def _heartbeat_group(self) -> tuple[str, dict[str, str]]:
        return HEARTBEATS, {"partitions": "1", "cleanup.policy": "compact"}


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
