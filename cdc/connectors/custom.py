"""Any other source connector of Debezium's, by its Java class and its own settings."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.connectors.catalogue import OF_CONNECT
from cdc.connectors.changelog import ChangelogConnector
from cdc.identifiers import check_topic


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
