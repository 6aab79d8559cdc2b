"""Whole tables as a generation's state holds them: what views are made from when a rebuild goes on after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from projections.columns import ColumnType
from projections.environment import Environment
from projections.spark.bulk import WholeTables
from projections.spark.disclosing import Disclosure
from projections.spark.exchange import are_few, fetched, few_rows, in_table_order, read
from projections.tablestore.layout import GenerationLayout, TableLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stored_tables(
    environment: Environment, layout: GenerationLayout, registry: Mapping[int, RegisteredSchema], *, records: int
) -> WholeTables:
    """The tables that a log of so many records was folded into; rows that are many are read by the executors."""
    few = are_few(records)
    frames = {name: _frame(environment, tables, few=few) for name, tables in layout.tables.items()}
    return WholeTables(frames, Disclosure(registry, environment.keys), environment.small, few)


def _frame(environment: Environment, tables: TableLayout, *, few: bool) -> DataFrame:
    columns = {**tables.table.sliced, "_deleted": ColumnType("boolean")}
    target = environment.store.target(tables.state)
    if few:
        return in_table_order(few_rows(environment.small, fetched(target, columns)), columns)
    return read(environment.spark, target, columns)
