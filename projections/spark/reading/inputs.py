"""One range of offsets to one staged DataFrame a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.event_versions import EventVersions
from projections.declaring.streams import EventStream
from projections.declaring.tables import ChangelogTable, EventTable, Table, VersionTable, ViewTopicTable
from projections.spark.changes.changelog import prepare_newest_per_key
from projections.spark.changes.parsers import parser_of
from projections.spark.changes.versions import prepare_versions
from projections.spark.events.decode import Decoder
from projections.spark.events.evolve import prepare_evolved_fold
from projections.spark.events.facts import prepare_facts, prepare_late
from projections.spark.events.fold import prepare_declared_fold
from projections.spark.events.versions import prepare_event_versions
from projections.spark.reading.view_records import prepare_view_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Fold = Callable[["DataFrame", "DataFrame | None"], "DataFrame"]


class Reduction:
    """How records become staged rows; made again when the registry has a new schema.

    Every table's columns are built at its first batch and used again for each later one.
    """

    def __init__(self, registry: Mapping[int, RegisteredSchema]) -> None:
        self.registry = registry
        self._folds: dict[int, Fold] = {}
        self._late: dict[int, Callable[[DataFrame], DataFrame]] = {}

    def reduce(self, raw: DataFrame, table: Table, stored: DataFrame | None = None) -> DataFrame:
        """One row a key (of a stream, a fact; of versions, a change) out of the raw records of the table's topic.

        The rows have the table's staging columns.
        ``stored`` is needed by tables whose aggregate evolves in Python, once there is state.
        """
        if id(table) not in self._folds:
            self._folds[id(table)] = self._prepare(table)
        return self._folds[id(table)](raw, stored)

    def late(self, raw: DataFrame, stream: EventStream) -> DataFrame:
        """The places of events that are no rows of a stream any more, with the kind and the words of each."""
        if id(stream) not in self._late:
            self._late[id(stream)] = prepare_late(stream, self._decoder(stream))
        return self._late[id(stream)](raw)

    def _prepare(self, table: Table) -> Fold:
        if isinstance(table, EventTable) and table.setters is None:
            return prepare_evolved_fold(table, self._decoder(table, as_written=True))
        rows = self._prepare_rows(table)
        return lambda raw, stored: rows(raw)

    def _prepare_rows(self, table: Table) -> Callable[[DataFrame], DataFrame]:
        if isinstance(table, ChangelogTable):
            return prepare_newest_per_key(table, parser_of(table, self.registry))
        if isinstance(table, VersionTable):
            return prepare_versions(table, parser_of(table, self.registry))
        if isinstance(table, ViewTopicTable):
            return prepare_view_rows(table)
        if isinstance(table, EventStream):
            return prepare_facts(table, self._decoder(table))
        if isinstance(table, EventVersions):
            return prepare_event_versions(table, self._decoder(table))
        if isinstance(table, EventTable):
            return prepare_declared_fold(table, self._decoder(table))
        raise TypeError(f"no reduction for {type(table).__name__}")

    def _decoder(self, table: EventTable | EventStream | EventVersions, *, as_written: bool = False) -> Decoder:
        return Decoder.of(table.event_types(), self.registry, as_written=as_written, source=table.source)


def needs_stored_state(table: Table) -> bool:
    """Whether a table's fold goes on from its stored rows inside Spark, rather than in the table store."""
    return isinstance(table, EventTable) and table.setters is None


def keys_of(raw: DataFrame, table: EventTable) -> DataFrame:
    """The distinct keys of the streams that raw event records belong to."""
    text = F.col("key").cast("string")
    stream = F.regexp_replace(text, "@[0-9]+$", "")
    return raw.select(F.substring(stream, len(table.aggregate.category) + 2, 1 << 20).alias(table.key[0])).distinct()
