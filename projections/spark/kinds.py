"""The kinds of tables: the one place that knows which class of Spark reads which declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.streams import EventStream, EventVersions
from projections.declaring.tables import ChangelogTable, EventTable, Table, VersionTable, ViewTopicTable
from projections.spark.changes.change_events import NewestRows
from projections.spark.changes.versions import RowVersions
from projections.spark.events.evolve import EvolvedFold
from projections.spark.events.facts import Facts, prepare_late
from projections.spark.events.fold import DeclaredFold
from projections.spark.events.versions import FoldedVersions
from projections.spark.reading.view_records import ViewRecords
from projections.spark.table_kind import Fold, Registry, Step, TableKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _folded(table: EventTable) -> TableKind[EventTable]:
    return EvolvedFold(table) if table.setters is None else DeclaredFold(table)


_KINDS: Final[Mapping[type[Table], Callable[[Any], TableKind[Any]]]] = {
    EventTable: _folded,
    EventStream: Facts,
    EventVersions: FoldedVersions,
    ChangelogTable: NewestRows,
    VersionTable: RowVersions,
    ViewTopicTable: ViewRecords,
}


def kind_of(table: Table) -> TableKind[Any]:
    """How Spark reads a table."""
    return _KINDS[type(table)](table)


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
