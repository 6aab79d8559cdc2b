"""SQL Server through Debezium 3.6 and the server's own change tables: tables become changelog topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cdc.connectors.base import setting
from cdc.connectors.changelog import ChangelogConnector
from cdc.connectors.debezium import LoginConnector
from cdc.connectors.encodings import BYTES, PRESERVED_TIMES, TEXT_OR_BYTES, Modes
from cdc.identifiers import TableName, check_identifier, check_topic


@dataclass(frozen=True, kw_only=True, repr=False)
class SqlServerSource(ChangelogConnector, LoginConnector):
    """Tables of SQL Server databases as changelog topics `{topic_prefix}.{database}.{schema}.{table}`.

    Change data capture must be enabled for each database and table, and for the signal table. `history`, `topic` and
    `signal_table` take names such as `database.schema.table`.

    Attributes:
        databases: The databases.
        tables: The tables of each database, as `schema.table`.
        history_topic: The topic that stores the definitions of tables.
        encrypt: The driver's setting.
        trust_certificate: Trust a self-signed certificate.

    Examples:
        >>> SqlServerSource(name="shop_tables", host="db", user="shop_cdc", topic_prefix="shop", databases=("crm",),
        ...                 tables=("dbo.customers",), password="${file:/run/secrets/shop.properties:password}",
        ...                 history_bootstrap_servers="kafka:9092").topics
        ('shop.crm.dbo.customers',)
    """

    JAVA_CLASS = "io.debezium.connector.sqlserver.SqlServerConnector"
    CATALOGUE = "sqlserver_keys.tsv"
    DATABASE = "SQL Server"
    OWNED = (
        ChangelogConnector.OWNED
        | LoginConnector.OWNED
        | {
            "database.names",
            "table.include.list",
            "driver.encrypt",
            "driver.trustServerCertificate",
            "schema.history.internal.kafka.topic",
            "schema.history.internal.kafka.bootstrap.servers",
        }
    )
    PLAIN: ClassVar[Modes] = {
        "time.precision.mode": ("isostring",),
        "decimal.handling.mode": ("string",),
        **TEXT_OR_BYTES,
    }
    WITH_SCHEMA: ClassVar[Modes] = {**BYTES, **PRESERVED_TIMES}

    port: int = 1433
    databases: tuple[str, ...]
    tables: tuple[str, ...]
    history_bootstrap_servers: str
    history_topic: str = ""
    encrypt: bool = True
    trust_certificate: bool = False

    def __post_init__(self) -> None:
        history_topic = self.history_topic or f"{self.topic_prefix}.schema-history"
        self._settle("history_topic", check_topic(history_topic, "history_topic"))
        self._some("databases", "database")
        self._some("tables", "table")
        for database in self.databases:
            check_identifier(database, "database", place="databases")
        if self.signal_table:
            database, _, table = self.signal_table.partition(".")
            check_identifier(database, "database", place="signal_table")
            TableName.parse(table, place="signal_table")
        _ = self.table_names
        super().__post_init__()

    @property
    def captured(self) -> tuple[str, ...]:
        """Every table in every database, `database.schema.table`."""
        return tuple(f"{database}.{table}" for database in self.databases for table in self.tables)

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables of each database, parsed."""
        return tuple(TableName.parse(table, place="tables") for table in self.tables)

    def _connection(self) -> dict[str, str]:
        return {
            **super()._connection(),
            "driver.encrypt": setting(self.encrypt),
            "driver.trustServerCertificate": setting(self.trust_certificate),
        }

    def _capture(self) -> dict[str, str]:
        return {
            "database.names": ",".join(self.databases),
            "table.include.list": ",".join(table.pattern for table in self.table_names),
            "schema.history.internal.kafka.topic": self.history_topic,
            "schema.history.internal.kafka.bootstrap.servers": self.history_bootstrap_servers,
            "schema.history.internal.store.only.captured.tables.ddl": "true",
            # A second topic of definitions, for readers of DDL; its name is the bare prefix.
            "include.schema.changes": "false",
        }
