"""One range of offsets to one staged DataFrame a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.declaring.streams import EventStream
from projections.declaring.tables import Table
from projections.spark.events.facts import prepare_late
from projections.spark.kinds import kind_of
from projections.spark.table_kind import Fold, Registry, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Reduction:
    """How records become staged rows; made again when the registry has a new schema.

    Every table's columns are built at its first batch and used again for each later one.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._folds: dict[int, Fold] = {}
        self._late: dict[int, Step] = {}

    def reduce(self, raw: DataFrame, table: Table, stored: DataFrame | None = None) -> DataFrame:
        """The staged rows of the raw records of a table's topic; ``stored`` as its kind needs it."""
        if id(table) not in self._folds:
            self._folds[id(table)] = kind_of(table).reduction(self.registry)
        return self._folds[id(table)](raw, stored)

    def late(self, raw: DataFrame, stream: EventStream) -> DataFrame:
        """The places of events that are no rows of a stream any more, with the kind and the words of each."""
        if id(stream) not in self._late:
            self._late[id(stream)] = prepare_late(stream, self.registry)
        return self._late[id(stream)](raw)
