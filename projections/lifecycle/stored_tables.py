"""Whole tables as a generation's state holds them: what views are made from when a rebuild goes on after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.spark.bulk import WholeTables
from projections.spark.exchange import are_few
from projections.spark.views.disclosing import Disclosure
from projections.stores.port import Generation, TablePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def load_state(environment: Environment, frame: DataFrame, place: TablePlace, *, rows: int) -> int:
    """Load a table's rows into a generation that has no readers yet; returns how many there were."""
    return environment.keeper.load(frame, place.state, rows=rows)


def stored_tables(
    environment: Environment,
    group: ProjectionGroup,
    layout: Generation,
    registry: Mapping[int, RegisteredSchema],
    *,
    records: int,
) -> WholeTables:
    """The tables that a log of so many records was folded into; rows that are many are read by the executors."""
    few = are_few(records)

    def stored(name: str) -> DataFrame:
        place = layout.tables[name]
        return environment.keeper.stored(place, {**place.table.sliced, "_deleted": ColumnType("boolean")}, few=few)

    return WholeTables(stored, group, Disclosure(registry, environment.keys), environment.small, few)
