"""The settings that every connector to PostgreSQL through Debezium 3.7 and pgoutput has."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from cdc.changes.rules import MARK_PREFIX
from cdc.connectors.debezium import LoginConnector
from cdc.connectors.secrets import is_reference
from cdc.identifiers import MAX_IDENTIFIER, TableName, check_connector_name, check_identifier, check_name, check_slot

_HASH_LENGTH: Final = 8


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresConnector(LoginConnector):
    """What every connector to a PostgreSQL database says; use PostgresSource or OutboxSource.

    `tables` are written `schema.table`. `publication` and `slot` are by default called after the connector; a name that
    PostgreSQL's slots cannot have is cut to letters, digits and underscores, with a part of its hash behind it, so that
    `shop-rows` and `shop.rows` do not share one. Both outlive the connector.
    """

    JAVA_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
    CATALOGUE = "postgres_keys.tsv"
    DATABASE = "PostgreSQL"
    OWNED = LoginConnector.OWNED | {
        "database.dbname",
        "table.include.list",
        "publication.name",
        "slot.name",
        "heartbeat.action.query",
    }

    port: int = 5432
    database: str
    tables: tuple[str, ...]
    publication: str = ""
    slot: str = ""

    def __post_init__(self) -> None:
        default = _default_name(check_connector_name(self.name))
        self._settle("publication", check_identifier(self.publication or default, "publication", place="publication"))
        self._settle("slot", check_slot(self.slot or default))
        for attribute in ("user", "database"):
            if not is_reference(name := getattr(self, attribute)):
                check_name(name, attribute, place=attribute)
        self._some("tables", "table")
        _ = self.table_names
        super().__post_init__()

    @property
    def operations(self) -> tuple[str, ...]:
        """What its publication has to let through."""
        return ("insert", "update", "delete")

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables, parsed."""
        return tuple(TableName.parse(table, place="tables") for table in self.tables)

    def _connection(self) -> dict[str, str]:
        return {**super()._connection(), "database.dbname": self.database}

    def _capture(self) -> dict[str, str]:
        return {
            # The default plug-in, decoderbufs, must be installed; pgoutput is in every server since 10.
            "plugin.name": "pgoutput",
            "slot.name": self.slot,
            "publication.name": self.publication,
            # The role may not create publications: their owner does, see cdc.source.grants.
            "publication.autocreate.mode": "disabled",
            "table.include.list": ",".join(table.pattern for table in self.table_names),
            **self._marks(),
            # A slot dropped and made again has missed changes: fail, don't go on from where it stands.
            "offset.mismatch.strategy": "trust_offset",
        }

    def _marks(self) -> dict[str, str]:
        """Write a message into the log and read it back, so that the slot moves while the tables are quiet.

        Heartbeats alone do not move it (the log of a busy database piled up behind a quiet table), a
        heartbeat table needs write rights; a logical message (PostgreSQL 14) needs neither table nor right.
        It also shows `apply_connector` that the whole way works.
        """
        return {
            "heartbeat.action.query": f"SELECT pg_logical_emit_message(false, '{MARK_PREFIX}', '')",
            "message.prefix.exclude.list": re.escape(MARK_PREFIX),
        }


def _default_name(connector: str) -> str:
    """Name publication and slot after a connector; no two connectors share a name, though their letters be the same."""
    name = f"factfold_{re.sub(r'[^a-z0-9_]', '_', connector.lower())}"
    if name == f"factfold_{connector}" and len(name) <= MAX_IDENTIFIER:
        return name
    code = hashlib.sha256(connector.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: MAX_IDENTIFIER - _HASH_LENGTH - 1]}_{code}"
