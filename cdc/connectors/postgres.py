"""PostgreSQL: tables of a database become changelog topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from cdc.connectors.changelog import ChangelogConnector
from cdc.connectors.encodings import BYTES, PRESERVED_TIMES, TEXT_OR_BYTES, Modes
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.identifiers import TableName
from cdc.source.grants import check_source

if TYPE_CHECKING:
    from sqlalchemy import Engine


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresSource(ChangelogConnector, PostgresConnector):
    """Captures tables of PostgreSQL as changelog topics `{topic_prefix}.{schema}.{table}`: JSON, compacted.

    A record's key holds the primary key's columns, its value the change event. A tombstone follows a delete. Dates,
    times and intervals are ISO text, decimals are text. `encoding` chooses otherwise.

    Attributes:
        tables: The tables, as `schema.table`.
        truncates: "stop" lets the connector fail at a TRUNCATE, which a compacted topic cannot express. With "skip" it
            goes on, and the rows stay in the topic until `factfold cdc compare --repair` deletes them.

    Examples:
        >>> PostgresSource(name="shop_tables", host="db", database="shop", user="shop_cdc", topic_prefix="shop",
        ...                password="${file:/run/secrets/shop.properties:password}", tables=("public.customers",))
    """

    OWNED = ChangelogConnector.OWNED | PostgresConnector.OWNED | {"skipped.operations"}
    PLAIN: ClassVar[Modes] = {
        "time.precision.mode": ("isostring",),
        "decimal.handling.mode": ("string",),
        # The default, a number of microseconds, takes a month for 30.4 days.
        "interval.handling.mode": ("string",),
        "hstore.handling.mode": ("json",),
        **TEXT_OR_BYTES,
    }
    WITH_SCHEMA: ClassVar[Modes] = {**BYTES, **PRESERVED_TIMES}
    NAMES_PLACEHOLDER: ClassVar[bool] = True

    truncates: Literal["stop", "skip"] = "stop"

    @property
    def captured(self) -> tuple[str, ...]:
        """The tables as declared, `schema.table`."""
        return self.tables

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that its publication must include."""
        return (*super().operations, *(["truncate"] if self.truncates == "stop" else []))

    def check_source(self, engine: Engine) -> None:
        """Check that the database is as this connector needs it. Raises SourceNotReady, which names what is missing."""
        check_source(engine, self)

    def _capture(self) -> dict[str, str]:
        # Debezium's own default is to skip them, after which the topic has rows that the table has not.
        return {**super()._capture(), "skipped.operations": "none" if self.truncates == "stop" else "t"}

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables, parsed. The signal table is one of them: signals are read as changes."""
        return self._with_signals(self.tables)
