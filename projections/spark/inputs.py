"""One range of offsets to one staged DataFrame a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from projections.spark.changelog import newest_per_key
from projections.spark.decode import Decoder
from projections.spark.evolve import fold_evolved
from projections.spark.fold import fold_declared
from projections.tables import ChangelogTable, EventTable, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Reduction:
    """How records become staged rows; the registry maps schema ids to schemas, and is replaced when one is unknown."""

    registry: Mapping[int, RegisteredSchema]

    def decoder(self, table: EventTable) -> Decoder:
        """The decoder of a table's event types."""
        return Decoder.of([event_type.name for event_type in table.event_types()], self.registry)

    def reduce(self, raw: DataFrame, table: Table, stored: DataFrame | None = None) -> DataFrame:
        """One row a key out of the raw records of the table's topic, with staging columns.

        ``stored`` is needed by tables whose aggregate evolves in Python, once there is state.
        """
        if isinstance(table, ChangelogTable):
            return newest_per_key(raw, table)
        if not isinstance(table, EventTable):
            raise TypeError(f"no reduction for {type(table).__name__}")
        if table.setters is None:
            return fold_evolved(raw, table, self.decoder(table), stored)
        return fold_declared(raw, table, self.decoder(table))


def needs_stored_state(table: Table) -> bool:
    """Whether a table's fold goes on from its stored rows inside Spark, rather than in the table store."""
    return isinstance(table, EventTable) and table.setters is None


def keys_of(raw: DataFrame, table: EventTable) -> DataFrame:
    """The distinct keys of the streams that raw event records belong to."""
    from pyspark.sql import functions as F  # noqa: N812

    text = F.col("key").cast("string")
    stream = F.regexp_replace(text, "@[0-9]+$", "")
    return raw.select(F.substring(stream, len(table.aggregate.category) + 2, 1 << 20).alias(table.key[0])).distinct()
