"""What every Debezium source says, whatever its database: to Connect, to its topics, to its readers.

What sources of changelogs share: a compacted topic a table, its encoding, its life, its signals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import SecretStr

from cdc.changes.change_records import SETTING, own_placeholder
from cdc.changes.rules import FIELD_EPOCH, FIELD_UNAVAILABLE
from cdc.connectors.base import OF_CONNECT, holds_secret, keys_of, setting, topic_creation
from cdc.connectors.declared import Connector
from cdc.connectors.encodings import Encoding, Modes, PlainJson, check_modes, check_nulls
from cdc.connectors.secrets import is_reference, refuse_literal, revealed
from cdc.errors import InvalidConnector
from cdc.identifiers import TableName, check_host, check_topic, check_topic_prefix
from cdc.transforms import Filter, InsertField, TopicMatches, Transform
from eventstore.topics import TOMBSTONE_RETENTION, TopicSpec, changelog_topic, history_topic

if TYPE_CHECKING:
    from sqlalchemy import Engine

# What a replication factor is left to: the broker's default.
BROKERS_DEFAULT: Final = "-1"
# The topics of heartbeats, as a regular expression.
HEARTBEATS: Final = "__debezium-heartbeat.*"
_PORTS: Final = range(1, 1 << 16)


@dataclass(frozen=True, kw_only=True, repr=False)
class DebeziumConnector(Connector):
    """What every Debezium source says; use PostgresSource, MySqlSource, …, OutboxSource. See Connector."""

    DATABASE: ClassVar[str]
    OWNED = Connector.OWNED | {"topic.prefix", "heartbeat.interval.ms"}

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


# A rebuild that takes longer than this could miss tombstones; a day is beyond any of ours.
COMPACTION_LAG_MS: Final = 24 * 60 * 60 * 1000
# Kept for good: marks of transactions say how far a rebuild may read, however long ago they were written.
_ONE_IN_ORDER: Final = {
    "partitions": "1",
    "replication.factor": BROKERS_DEFAULT,
    "cleanup.policy": "delete",
    "retention.ms": "-1",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class ChangelogConnector(DebeziumConnector):
    """A source whose tables become changelog topics: key the primary key, value the change event, compacted.

    `encoding` says how records are written; one whose values a reader would have to guess is refused
    (UnsupportedEncoding). `history` names captured tables whose topics are not compacted and keep every change, for
    readers that ask what a row was at some time. `epoch` says which life of the source records come from: raise it
    when positions of the log start over, as after a restore or a move to another server.

    `transactions` publishes where each transaction of the source begins and ends, as `{topic_prefix}.transaction`.
    `signal_table` takes the requests for snapshots during streaming; its own changes are read and not
    published. `notifications_topic` gets the progress of these snapshots.
    """

    OWNED = DebeziumConnector.OWNED | {
        "provide.transaction.metadata",
        "signal.data.collection",
        "signal.enabled.channels",
        "notification.enabled.channels",
        "notification.sink.topic.name",
    }
    # Modes by which values describe themselves, and those that are needed though a schema comes with the values.
    PLAIN: ClassVar[Modes] = {}
    WITH_SCHEMA: ClassVar[Modes] = {}
    # Whether its change events say what stands for a missing value: those that Factfold reads do.
    NAMES_PLACEHOLDER: ClassVar[bool] = False

    encoding: Encoding = field(default_factory=PlainJson)
    epoch: int = 0
    history: tuple[str, ...] = ()
    transactions: bool = False
    signal_table: str | None = None
    notifications_topic: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("epoch", 0)
        if self.notifications_topic is not None:
            check_topic(self.notifications_topic, "notifications_topic")
        for table in self.history:
            self._require_captured(table, "history")
        declared, own = self._declared(), {key: (value,) for key, value in self._placeholder_setting().items()}
        check_modes(declared, plain={**self.PLAIN, **own}, with_schema={**self.WITH_SCHEMA, **own}, connector=self.name)
        check_nulls(declared, connector=self.name)

    @property
    def captured(self) -> tuple[str, ...]:
        """What is captured, as it stands in the names of topics behind the prefix."""
        raise NotImplementedError

    @property
    def topics(self) -> tuple[str, ...]:
        """The changelog topics of all that is captured, in its order."""
        return tuple(f"{self.topic_prefix}.{name}" for name in self.captured)

    def topic(self, table: str) -> str:
        """Return the changelog topic of one captured table."""
        self._require_captured(table, "tables")
        return f"{self.topic_prefix}.{table}"

    def _require_captured(self, table: str, place: str) -> None:
        if table not in self.captured:
            raise InvalidConnector(
                f"connector {self.name!r} does not capture table {table!r}",
                remedy=f"name one of {', '.join(self.captured)}",
                place=place,
            )

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """How the topics of changes, transactions and notifications have to be, for `ensure_topics`."""
        histories = {self.topic(table) for table in self.history}
        kinds = {topic: history_topic if topic in histories else changelog_topic for topic in self.topics}
        changes = (kind(topic, partitions=self.partitions) for topic, kind in kinds.items())
        return (*changes, *(TopicSpec(topic, 1, {"cleanup.policy": "delete"}) for topic in self._control_topics()))

    @property
    def placeholder(self) -> str:
        """What stands in its change events for a value that the source's log does not have; each event names it.

        No two connectors share one, and no user writes it by chance. `Flatten` takes the name away and leaves the text:
        compare flattened rows with it. Empty for a source whose change events Factfold does not read.
        """
        if not self.NAMES_PLACEHOLDER:
            return ""
        if SETTING in self.unchecked:
            return setting(self.unchecked[SETTING])
        place = (f"{key}={value}" for key, value in self._connection().items() if not holds_secret(key, value))
        return own_placeholder(self.name, self.topic_prefix, *place)

    def _placeholder_setting(self) -> dict[str, str]:
        """The setting, of a connector that has it: one without sends no text in place of a value."""
        known = SETTING in keys_of(self.CATALOGUE)
        return {SETTING: self.placeholder} if known and self.placeholder else {}

    @property
    def transaction_topic(self) -> str:
        """The topic that says where transactions begin and end, if `transactions` are published."""
        return f"{self.topic_prefix}.transaction"

    def _with_signals(self, tables: tuple[str, ...]) -> tuple[TableName, ...]:
        # Signals are read as changes: their table is captured too.
        places = dict.fromkeys(tables, "tables")
        if self.signal_table:
            places.setdefault(self.signal_table, "signal_table")
        return tuple(TableName.parse(table, place=place) for table, place in places.items())

    def _output(self) -> dict[str, str]:
        known = keys_of(self.CATALOGUE)
        return {
            **{key: values[0] for key, values in self.PLAIN.items()},
            **self._placeholder_setting(),
            **{key: value for key, value in self.encoding.modes().items() if key in known},
            **self._control(),
            "tombstones.on.delete": "true",
            **self.encoding.converters(),
            **dict(topic_creation(self._changelog(), self._topic_groups())),
        }

    def _control(self) -> dict[str, str]:
        settings = {"provide.transaction.metadata": "true"} if self.transactions else {}
        if self.signal_table:
            settings |= {"signal.data.collection": self.signal_table, "signal.enabled.channels": "source"}
        if self.notifications_topic:
            settings |= {
                "notification.enabled.channels": "sink",
                "notification.sink.topic.name": self.notifications_topic,
            }
        return settings

    def _own_transforms(self) -> tuple[Transform, ...]:
        transforms: list[Transform] = []
        if self.signal_table:
            # Debezium reads signals before its records come to the transforms.
            signals = TopicMatches(pattern=re.escape(f"{self.topic_prefix}.{self.signal_table}"))
            transforms.append(Filter(name="signals", when=signals))
        if self.epoch:
            marks = [self.transaction_topic] if self.transactions else []
            changes = TopicMatches(pattern=exactly([*self.topics, *marks]))
            transforms.append(InsertField(name="epoch", when=changes, field=FIELD_EPOCH, value=str(self.epoch)))
        if self.placeholder:
            transforms.append(self._naming_placeholder())
        return tuple(transforms)

    def _naming_placeholder(self) -> Transform:
        # Of all records but those known to be no changes: a changelog topic may have another name than the table.
        others = "|".join([*map(re.escape, self._control_topics()), HEARTBEATS])
        field, value = FIELD_UNAVAILABLE, self.placeholder
        return InsertField(name="unavailable", when=TopicMatches(pattern=others), negate=True, field=field, value=value)

    def _topic_groups(self) -> dict[str, tuple[str, Mapping[str, str]]]:
        groups: dict[str, tuple[str, Mapping[str, str]]] = {"heartbeat": self._heartbeat_group()}
        if control := self._control_topics():
            groups["control"] = (exactly(control), _ONE_IN_ORDER)
        if self.history:
            specs = [history_topic(self.topic(table), partitions=self.partitions) for table in self.history]
            groups["history"] = (exactly([spec.name for spec in specs]), self._shape(specs[0].config))
        return groups

    def _control_topics(self) -> list[str]:
        transactions = [self.transaction_topic] if self.transactions else []
        return transactions + ([self.notifications_topic] if self.notifications_topic else [])

    def _changelog(self) -> dict[str, str]:
        lag = {"min.compaction.lag.ms": str(COMPACTION_LAG_MS)}
        return self._shape({"cleanup.policy": "compact", **lag, **TOMBSTONE_RETENTION})

    def _shape(self, config: Mapping[str, str]) -> dict[str, str]:
        return {"partitions": str(self.partitions), "replication.factor": BROKERS_DEFAULT, **config}


@dataclass(frozen=True, kw_only=True, repr=False)
class CustomSource(ChangelogConnector):
    r"""Tables of a database without a class of its own, as changelog topics `{topic_prefix}.{table}`.

    Write the settings of the connector into `unchecked`, by Debezium's names, secrets as references. Factfold checks
    neither their names nor their values.

    Attributes:
        class_name: The Java class of the connector.
        tables: The names of the topics, without the prefix.

    Examples:
        >>> CustomSource(name="shop_documents", class_name="io.debezium.connector.mongodb.MongoDbConnector",
        ...              topic_prefix="shop", tables=("crm.customers",), unchecked={
        ...                  "mongodb.connection.string": "${file:/run/secrets/shop.properties:mongodb}",
        ...                  "collection.include.list": r"crm\.customers"}).topics
        ('shop.crm.customers',)
    """

    CATALOGUE = OF_CONNECT
    DATABASE = "another database"

    class_name: str
    tables: tuple[str, ...]

    def __post_init__(self) -> None:
        self._settle("JAVA_CLASS", self.class_name)
        self._some("tables", "table")
        for topic in self.topics:
            check_topic(topic, "tables")
        super().__post_init__()

    @property
    def captured(self) -> tuple[str, ...]:
        """The tables as declared."""
        return self.tables

    def _connection(self) -> dict[str, str]:
        return {}

    def _capture(self) -> dict[str, str]:
        return self.encoding.modes()  # no list says which of them the connector reads
