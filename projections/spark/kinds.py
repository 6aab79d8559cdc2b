"""The kinds of tables: the one place that knows which class of Spark reads which declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from projections.declaring.event_versions import EventVersions
from projections.declaring.streams import EventStream
from projections.declaring.tables import ChangelogTable, EventTable, Table, VersionTable, ViewTopicTable
from projections.spark.changes.changelog import NewestRows
from projections.spark.changes.versions import RowVersions
from projections.spark.events.evolve import EvolvedFold
from projections.spark.events.facts import Facts
from projections.spark.events.fold import DeclaredFold
from projections.spark.events.versions import FoldedVersions
from projections.spark.reading.view_records import ViewRecords
from projections.spark.table_kind import TableKind


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
