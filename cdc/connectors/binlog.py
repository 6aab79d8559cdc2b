"""MySQL and MariaDB through Debezium 3.6: what is written to the binary log becomes changelog topics.

Typed after the released connector's own list of settings, MariaDB's after Debezium's sources.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar, Final

from cdc.connectors.debezium import ChangelogConnector, LoginConnector, exactly
from cdc.connectors.encodings import BYTES, PRESERVED_TIMES, TEXT_OR_BYTES, Modes
from cdc.identifiers import TableName, check_connector_name, check_topic

# Ids below are those that administrators give by hand; 32 bits are what the protocol has.
_DERIVED_IDS: Final = range(100_000, 2**32)


@dataclass(frozen=True, kw_only=True, repr=False)
class BinlogConnector(ChangelogConnector, LoginConnector):
    """What sources that read a binary log say; use MySqlSource or MariaDbSource.

    `tables` are written `database.table`, and their topics are `{topic_prefix}.{database}.{table}`. The connector keeps
    every change of the tables' definitions in `history_topic` (default: `{topic_prefix}.schema-history`), which it
    makes itself, of one partition and kept for ever, on the brokers of `history_bootstrap_servers`. If that
    topic is lost, the connector needs a new initial snapshot. `server_id` is its number among the server's replicas
    (default: one derived from the name).

    Values that are not what they seem, as recorded: a TIME below 0 or above 24 hours comes as null in ISO
    text (and in `connect`), with a warning in the worker's log only: count times in microseconds where there are such;
    a BIGINT UNSIGNED above 2^63 − 1 comes as that number minus 2^64; a date of zeros comes as null; a FLOAT has six
    digits in the initial snapshot and all of them afterwards.
    """

    OWNED = (
        ChangelogConnector.OWNED
        | LoginConnector.OWNED
        | {
            "database.server.id",
            "database.include.list",
            "table.include.list",
            "schema.history.internal.kafka.topic",
            "schema.history.internal.kafka.bootstrap.servers",
        }
    )
    PLAIN: ClassVar[Modes] = {
        "time.precision.mode": ("isostring",),
        "decimal.handling.mode": ("string",),
        # The other mode, precise, is base64 of the number's bytes.
        "bigint.unsigned.handling.mode": ("long",),
        **TEXT_OR_BYTES,
    }
    WITH_SCHEMA: ClassVar[Modes] = {**BYTES, **PRESERVED_TIMES}
    NAMES_PLACEHOLDER: ClassVar[bool] = True

    port: int = 3306
    tables: tuple[str, ...]
    history_bootstrap_servers: str
    history_topic: str = ""
    server_id: int = 0

    def __post_init__(self) -> None:
        history_topic = self.history_topic or f"{self.topic_prefix}.schema-history"
        self._settle("history_topic", check_topic(history_topic, "history_topic"))
        self._at_least("server_id", 0)
        self._settle("server_id", self.server_id or _derived_id(check_connector_name(self.name)))
        self._some("tables", "table")
        _ = self.table_names
        super().__post_init__()

    @property
    def captured(self) -> tuple[str, ...]:
        """The tables as declared, `database.table`."""
        return self.tables

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables, parsed, their databases as schemas; the signal table is one."""
        return self._with_signals(self.tables)

    def _capture(self) -> dict[str, str]:
        databases = dict.fromkeys(name.schema for name in self.table_names)
        return {
            "database.server.id": str(self.server_id),
            "database.include.list": ",".join(map(exactly, ([name] for name in databases))),
            "table.include.list": ",".join(table.pattern for table in self.table_names),
            "schema.history.internal.kafka.topic": self.history_topic,
            "schema.history.internal.kafka.bootstrap.servers": self.history_bootstrap_servers,
            # Without these, every start reads the definitions of tables that are not captured.
            "schema.history.internal.store.only.captured.databases.ddl": "true",
            "schema.history.internal.store.only.captured.tables.ddl": "true",
            # A second topic of definitions, for readers of DDL; its name is the bare prefix.
            "include.schema.changes": "false",
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class MySqlSource(BinlogConnector):
    """Tables of a MySQL server as changelog topics. See BinlogConnector, ChangelogConnector and LoginConnector.

    The server needs `binlog_format=ROW` and `binlog_row_image=FULL`, the user SELECT, RELOAD, SHOW DATABASES,
    REPLICATION SLAVE and REPLICATION CLIENT, and LOCK TABLES where no login may take a global read lock.

    Examples:
        >>> MySqlSource(name="shop_tables", host="db", user="shop_cdc", topic_prefix="shop", tables=("crm.customers",),
        ...             password="${file:/run/secrets/shop.properties:password}",
        ...             history_bootstrap_servers="kafka:9092").topics
        ('shop.crm.customers',)
    """

    JAVA_CLASS = "io.debezium.connector.mysql.MySqlConnector"
    CATALOGUE = "mysql_keys.tsv"
    DATABASE = "MySQL"


@dataclass(frozen=True, kw_only=True, repr=False)
class MariaDbSource(BinlogConnector):
    """Tables of a MariaDB server as changelog topics. See BinlogConnector, ChangelogConnector and LoginConnector.

    Server and user need what MySqlSource says. BINLOG MONITOR is MariaDB's name of REPLICATION CLIENT.

    Examples:
        >>> MariaDbSource(name="shop_tables", host="db", user="shop_cdc", topic_prefix="shop",
        ...               tables=("crm.customers",), password="${file:/run/secrets/shop.properties:password}",
        ...               history_bootstrap_servers="kafka:9092").topics
        ('shop.crm.customers',)
    """

    JAVA_CLASS = "io.debezium.connector.mariadb.MariaDbConnector"
    CATALOGUE = "mariadb_keys.tsv"
    DATABASE = "MariaDB"


def _derived_id(name: str) -> int:
    # Debezium draws one at random among a thousand at every start: two connectors of one server would meet some day.
    return _DERIVED_IDS.start + zlib.crc32(name.encode()) % len(_DERIVED_IDS)
