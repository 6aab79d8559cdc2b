"""The Delta tables of one generation: a folder of its own, with a table for each state and each view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from projections.declaring.columns import ColumnType
from projections.declaring.event_versions import EventVersions
from projections.declaring.group import ProjectionGroup
from projections.declaring.streams import EventStream
from projections.declaring.tables import Table, VersionTable
from projections.declaring.views import View
from projections.errors import InvalidDefinition
from projections.spark.lakehouse.versioned import VersionedTable

SET_ASIDE: Final = "set_aside"
HORIZON: Final = "horizon"


@dataclass(frozen=True)
class StatePlace:
    """Where a table's state is."""

    table: Table
    state: VersionedTable


@dataclass(frozen=True)
class DeltaViewPlace:
    """Where a view is."""

    definition: View
    columns: Mapping[str, ColumnType]
    view: VersionedTable

    @property
    def name(self) -> str:
        """The view's name."""
        return self.definition.name

    @property
    def stored_columns(self) -> Mapping[str, ColumnType]:
        """The columns alone: a group is computed from all of its rows each time."""
        return self.columns


@dataclass(frozen=True)
class DeltaGeneration:
    """The tables of a generation; views that others read come before these.

    ``aside`` and ``horizon`` are made with their first rows: records set aside, how far tables have lost deleted rows.
    """

    name: str
    tables: Mapping[str, StatePlace]
    views: Mapping[str, DeltaViewPlace]
    aside: VersionedTable
    horizon: VersionedTable


def view_name(view: str) -> str:
    """The name of a view's table in its generation."""
    return f"view_{view}"


def state_name(table: str) -> str:
    """The name of a state's table in its generation."""
    return f"state_{table}"


def require_storable(group: ProjectionGroup) -> None:
    """Raise InvalidDefinition for a group that cannot be stored in Delta."""
    for name, table in group.tables.items():
        if table.personal:
            raise _refused(
                group,
                f"table {name!r} has personal columns, and earlier versions of a Delta table keep what they showed",
                "keep a group with personal columns in PostgreSQL, where an erasure reaches its views",
            )
        if isinstance(table, EventStream | EventVersions | VersionTable):
            raise _refused(
                group,
                f"{name!r} is a stream, or has the versions of rows, which Delta does not store yet",
                "keep the group in PostgreSQL or SQLite",
            )


def _refused(group: ProjectionGroup, cause: str, remedy: str) -> InvalidDefinition:
    return InvalidDefinition(cause, remedy=remedy, place=f"projection group {group.name}")
