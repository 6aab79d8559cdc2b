"""Why a view that serves has no row of a key: from its rows of state, through the operators of its own query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from projections.declaring.columns import LONG
from projections.declaring.group import ProjectionGroup
from projections.declaring.views import View
from projections.environment import Environment
from projections.lifecycle.building import stored_tables
from projections.spark.bulk import WholeTables, persisted
from projections.spark.failures import described
from projections.spark.views.missing import TABLE, VIEW, Dropped, dropped, named_rows, over_rows
from projections.spark.views.view_functions import as_written, view_columns
from projections.stores.behind_rows import require_key, typed
from projections.stores.runs import ViewColumns


def why_missing(environment: Environment, group: ProjectionGroup, view: str, key: Mapping[str, Any]) -> list[Dropped]:
    """Return where the row of a key was lost in a view that serves, from the view down to a table.

    Nothing if the view has the row, by the rows of its tables. ``key`` has the value of each key column, or its text.

    Raises:
        InvalidDefinition: The view or a column of its key is unknown.
        NoServingGeneration: The group was not built yet.

    Examples:
        >>> [found] = why_missing(environment, shop_views, "open_orders", {"order_id": "o7"})
        >>> found.condition, found.values
        ("(status = 'open')", ({'status': 'closed'},))
    """
    columns = view_columns(environment.spark, group)
    known = group.resolved(columns).view(view)
    require_key(known, key, columns[view])
    values = {column: typed(columns[view][column], column, value) for column, value in key.items()}
    rows, place = _stored_rows(environment, group, columns), f"{VIEW}{view}"
    try:
        with described(place):
            plan = _plan(environment, group, rows, group.view(view))
            return dropped(environment.small, plan, values, place, _plain_columns(group))
    finally:
        rows.release()


def _plain_columns(group: ProjectionGroup) -> dict[str, set[str]] | None:
    """By the place of each table, its columns without values of persons. None if the group has none of these."""
    if not group.personal:
        return None
    return {f"{TABLE}{name}": set(table.columns) - set(table.personal) for name, table in group.names.items()}


def _stored_rows(environment: Environment, group: ProjectionGroup, columns: ViewColumns) -> WholeTables:
    """The rows of the state of the generation that serves."""
    _, layout = environment.store.serving(group, columns)
    progress = environment.store.serving_state(group.name).progress
    records = sum(offset for parts in progress.values() for offset in parts.values())
    schemas = environment.log.schemas(group.avro_changelogs)
    stored = stored_tables(environment, group, layout, schemas, records=records, also={"_offset": LONG})
    return replace(stored, make=lambda name: persisted(stored.make(name)))


def _plan(environment: Environment, group: ProjectionGroup, tables: WholeTables, view: View) -> Any:
    """The plan of a view, in which those of the views that it reads stand where their rows are read."""
    whole, result = as_written(environment.spark, group, view)
    rows = {}
    for name, read in view.tables.items():
        if isinstance(read, View):
            rows[name] = named_rows(environment.small, _plan(environment, group, tables, read), f"{VIEW}{read.name}")
        else:
            rows[name] = tables.rows(read).alias(f"{TABLE}{name}")
    return over_rows(environment.small, whole, result, rows)
