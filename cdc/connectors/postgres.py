"""PostgreSQL through Debezium 3.7 and pgoutput: tables of a database become changelog topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from cdc.connectors.base import check_extra, revealed_password, setting, topic_creation
from cdc.errors import InvalidConnector, UnsupportedEncoding
from cdc.identifiers import (
    TableName,
    check_connector_name,
    check_identifier,
    check_slot,
    check_topic_prefix,
)
from cdc.rules import MARK_PREFIX
from eventstore.topics import TopicSpec, changelog_topic, history_topic

if TYPE_CHECKING:
    from sqlalchemy import Engine

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"

# A record says by itself what it is: a date is 2013-01-31Z and not 15736, an amount "12.50" and not base64.
SELF_DESCRIBING: Final = {"time.precision.mode": "isostring", "decimal.handling.mode": "string"}

# A rebuild that takes longer than this could miss tombstones; a day is beyond any of ours.
COMPACTION_LAG_MS: Final = 24 * 60 * 60 * 1000

_OWNED: Final = frozenset(
    {
        "name",
        "connector.class",
        "database.hostname",
        "database.port",
        "database.dbname",
        "database.user",
        "database.password",
        "topic.prefix",
        "table.include.list",
        "publication.name",
        "slot.name",
        "heartbeat.interval.ms",
        "heartbeat.action.query",
        "provide.transaction.metadata",
        "signal.data.collection",
        "signal.enabled.channels",
        "notification.enabled.channels",
        "notification.sink.topic.name",
    }
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresConnector:
    """What every connector to a PostgreSQL database says; use PostgresSource or OutboxSource.

    `password` is a reference to a config provider (`${file:/path:key}`, see cdc.secrets); a literal is
    refused unless `allow_literal_secrets`. `tables` are written `schema.table`. `publication` and `slot`
    default to the connector's name; both outlive the connector. `extra` overrides any other setting of
    the Debezium connector, by its own name. Errors: InvalidConnector and its kinds, InvalidIdentifier.
    """

    name: str
    host: str
    database: str
    user: str
    password: str | SecretStr = field(repr=False)
    topic_prefix: str
    tables: tuple[str, ...]
    port: int = 5432
    publication: str = ""
    slot: str = ""
    partitions: int = 4
    heartbeat_interval_ms: int = 1000
    extra: Mapping[str, str | int | bool] = field(default_factory=dict)
    allow_literal_secrets: bool = False

    def __post_init__(self) -> None:
        safe_name = re.sub(r"[^a-z0-9_]", "_", check_connector_name(self.name).lower())
        self._settle("publication", self.publication or f"factfold_{safe_name}")
        self._settle("slot", self.slot or f"factfold_{safe_name}")
        self._settle("password", SecretStr(self._password_text()))
        self._check_names()
        check_extra(self._overrides(), catalogue="postgres_keys.tsv", owned=_OWNED, connector=self.name)

    def _settle(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)

    def _password_text(self) -> str:
        return revealed_password(self.password, allow_literal=self.allow_literal_secrets, connector=self.name)

    def _check_names(self) -> None:
        check_identifier(self.publication, "publication")
        check_slot(self.slot)
        check_topic_prefix(self.topic_prefix)
        for attribute in ("heartbeat_interval_ms", "partitions"):
            if getattr(self, attribute) < 1:
                raise InvalidConnector(
                    f"connector {self.name!r} has {attribute}={getattr(self, attribute)}",
                    remedy=f"set {attribute} to 1 or more",
                )
        if not self.tables:
            raise InvalidConnector(
                f"connector {self.name!r} captures no table", remedy="name at least one as schema.table"
            )
        _ = self.table_names

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables, parsed."""
        return tuple(TableName.parse(table) for table in self.tables)

    def config(self) -> dict[str, str]:
        """Return the configuration for Kafka Connect, all values as text."""
        return {**self._connection(), **self._capture(), **self._output(), **self._overrides()}

    def _overrides(self) -> dict[str, str]:
        return {key: setting(value) for key, value in self.extra.items()}

    def check_source(self, engine: Engine) -> None:
        """Look whether the database is as this connector needs it; SourceNotReady says what is not."""
        from cdc.grants import check_source

        check_source(engine, self)

    def _connection(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": self.host,
            "database.port": str(self.port),
            "database.dbname": self.database,
            "database.user": self.user,
            "database.password": self._password_text(),
            "topic.prefix": self.topic_prefix,
        }

    def _capture(self) -> dict[str, str]:
        return {
            # The default plug-in, decoderbufs, must be installed; pgoutput is in every server since 10.
            "plugin.name": "pgoutput",
            "slot.name": self.slot,
            "publication.name": self.publication,
            # The role may not create publications: their owner does, see cdc.grants.
            "publication.autocreate.mode": "disabled",
            "table.include.list": ",".join(table.pattern for table in self.table_names),
            "snapshot.mode": "initial",
            **self._heartbeat(),
            # A slot dropped and made again has missed changes: fail, don't go on from where it stands.
            "offset.mismatch.strategy": "trust_offset",
            # Debezium's context headers would say in 150 bytes a record what topic and value say already.
            "extended.headers.enabled": "false",
            # An idle task sleeps this long between looks at its queue: the default of 500 adds a quarter of a
            # second to the average change; 20 cost 50 wake-ups a second.
            "poll.interval.ms": "20",
            # Records and their source offset in one Kafka transaction: a killed worker repeats nothing.
            "exactly.once.support": "required",
        }

    def _output(self) -> dict[str, str]:
        raise NotImplementedError

    def _heartbeat(self) -> dict[str, str]:
        """Write a message into the log and read it back, so that the slot moves while the tables are quiet.

        Heartbeats alone do not move it (the log of a busy database piled up behind a quiet table), a
        heartbeat table needs write rights; a logical message (PostgreSQL 14) needs neither table nor right.
        It also shows `apply` that the whole way works.
        """
        return {
            "heartbeat.interval.ms": str(self.heartbeat_interval_ms),
            "heartbeat.action.query": f"SELECT pg_logical_emit_message(false, '{MARK_PREFIX}', '')",
            "message.prefix.exclude.list": re.escape(MARK_PREFIX),
        }

    def _heartbeat_group(self) -> tuple[str, dict[str, str]]:
        return "__debezium-heartbeat.*", {"partitions": "1", "cleanup.policy": "compact"}

    def __repr__(self) -> str:
        shown = (f.name for f in fields(self) if f.repr and f.name != "extra")
        texts = [f"{name}={getattr(self, name)!r}" for name in shown]
        return f"{type(self).__name__}({', '.join(texts)}, password='**********', extra={sorted(self.extra)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresSource(PostgresConnector):
    """Tables captured as changelog topics `{topic_prefix}.{schema}.{table}`: JSON without schemas, compacted.

    Key: the primary key's columns. Value: the change event, a tombstone after a delete. Dates and times are
    ISO text, decimals are text; another encoding is refused, because a reader could not know it
    (UnsupportedEncoding), unless `extra` also chooses a value converter that carries a schema.

    `history` names captured tables whose topics are not compacted and keep every change, for readers that ask
    what a row was at some time.

    `transactions` publishes where each transaction of the source begins and ends, as `{topic_prefix}.transaction`.
    `signal_table` (`schema.table`, see cdc.signals) is where the source is told to take snapshots while it
    streams; `notifications_topic` is where it tells how far they are.
    """

    history: tuple[str, ...] = ()
    transactions: bool = False
    signal_table: str | None = None
    notifications_topic: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.notifications_topic is not None:
            check_topic_prefix(self.notifications_topic)
        for table in self.history:
            self.topic(table)
        config = self.config()
        if not _carries_schema(config):
            for key, wanted in SELF_DESCRIBING.items():
                _check_encoding(key, config[key], wanted=wanted, connector=self.name)

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables, parsed; the signal table is one: signals are read as changes."""
        signals = [self.signal_table] if self.signal_table else []
        return tuple(TableName.parse(table) for table in dict.fromkeys([*self.tables, *signals]))

    @property
    def transaction_topic(self) -> str:
        """The topic that says where transactions begin and end, if `transactions` are published."""
        return f"{self.topic_prefix}.transaction"

    def topic(self, table: str) -> str:
        """Return the changelog topic of one captured table."""
        if TableName.parse(table) not in map(TableName.parse, self.tables):
            raise InvalidConnector(
                f"connector {self.name!r} does not capture table {table!r}",
                remedy=f"name one of {', '.join(self.tables)}",
            )
        return f"{self.topic_prefix}.{table}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The changelog topics of all captured tables, in their order."""
        return tuple(self.topic(table) for table in self.tables)

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """How the changelog topics have to be, for `ensure_topics`."""
        kept = {self.topic(table) for table in self.history}
        return tuple(
            (history_topic if t in kept else changelog_topic)(t, partitions=self.partitions) for t in self.topics
        )

    def _output(self) -> dict[str, str]:
        return {
            **SELF_DESCRIBING,
            **self._transactions(),
            **self._signals(),
            "tombstones.on.delete": "true",
            "key.converter": JSON_CONVERTER,
            "key.converter.schemas.enable": "false",
            "value.converter": JSON_CONVERTER,
            "value.converter.schemas.enable": "false",
            **dict(topic_creation(self._changelog(), self._topic_groups())),
        }

    def _transactions(self) -> dict[str, str]:
        return {"provide.transaction.metadata": "true"} if self.transactions else {}

    def _signals(self) -> dict[str, str]:
        settings = {}
        if self.signal_table:
            settings |= {"signal.data.collection": self.signal_table, "signal.enabled.channels": "source"}
        if self.notifications_topic:
            settings |= {
                "notification.enabled.channels": "sink",
                "notification.sink.topic.name": self.notifications_topic,
            }
        return settings

    def _control_topics(self) -> list[str]:
        """Name the topics beside the changelogs: one partition, so that their order is the source's."""
        signals = f"{self.topic_prefix}.{self.signal_table}" if self.signal_table else None
        transactions = self.transaction_topic if self.transactions else None
        return [topic for topic in (transactions, signals, self.notifications_topic) if topic]

    def _topic_groups(self) -> dict[str, tuple[str, dict[str, str]]]:
        groups = {"heartbeat": self._heartbeat_group()}
        if control := self._control_topics():
            shape = {"partitions": "1", "replication.factor": "-1", "cleanup.policy": "delete"}
            groups["control"] = ("|".join(map(re.escape, control)), shape)
        if self.history:
            kept = [history_topic(self.topic(table), partitions=self.partitions) for table in self.history]
            shape = {"partitions": str(self.partitions), "replication.factor": "-1", **kept[0].config}
            groups["history"] = ("|".join(re.escape(spec.name) for spec in kept), shape)
        return groups

    def _changelog(self) -> dict[str, str]:
        return {
            "partitions": str(self.partitions),
            "replication.factor": "-1",
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
            "delete.retention.ms": str(COMPACTION_LAG_MS),
        }


def _carries_schema(config: Mapping[str, str]) -> bool:
    if config["value.converter"] != JSON_CONVERTER:
        return True
    return config["value.converter.schemas.enable"] == "true"


def _check_encoding(key: str, value: str, *, wanted: str, connector: str) -> None:
    if value == wanted:
        return
    raise UnsupportedEncoding(
        f"connector {connector!r} sends JSON without schemas with {key}={value}: "
        "its values cannot be told apart from plain numbers and text",
        remedy=f"keep {key}={wanted}, or turn value.converter.schemas.enable on",
        place=key,
    )
