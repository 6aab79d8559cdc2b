"""Why a view that serves has no row of a key: from its rows of state, through the operators of its own query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from projections.declaring.columns import LONG, ColumnType
from projections.declaring.group import ProjectionGroup
from projections.declaring.views import View
from projections.environment import Environment
from projections.errors import InvalidDefinition
from projections.spark.bulk import WholeTables, persisted
from projections.spark.exchange import are_few
from projections.spark.failures import described
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.missing import DELETED, TABLE, VIEW, Dropped, dropped, named_rows, over_rows
from projections.spark.views.view_functions import as_written, view_columns
from projections.stores.behind_rows import typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    known = group.resolved(columns).view(view).key
    if set(key) != set(known) or not set(key) <= set(columns[view]):
        raise InvalidDefinition(
            f"view {view!r} has no key of {', '.join(sorted(key))}", remedy=f"give its key: {', '.join(known)}"
        )
    values = {column: typed(columns[view][column], column, value) for column, value in key.items()}
    rows, place = _StoredViews.of(environment, group), f"{VIEW}{view}"
    try:
        with described(place):
            return dropped(environment.small, rows.plan(group.view(view)), values, place, plain_columns(group))
    finally:
        rows.tables.release()


def plain_columns(group: ProjectionGroup) -> dict[str, set[str]] | None:
    """By the place of each table, its columns without values of persons. None if the group has none of these."""
    if not group.personal:
        return None
    return {f"{TABLE}{name}": set(table.columns) - set(table.personal) for name, table in group.names.items()}


@dataclass(frozen=True)
class _StoredViews:
    """The plans of views as they are written, over the rows of a generation's state."""

    environment: Environment
    group: ProjectionGroup
    tables: WholeTables

    @staticmethod
    def of(environment: Environment, group: ProjectionGroup) -> _StoredViews:
        _, layout = environment.store.serving(group, view_columns(environment.spark, group))
        progress = environment.store.serving_state(group.name).progress
        few = are_few(sum(offset for parts in progress.values() for offset in parts.values()))

        def stored(name: str) -> DataFrame:
            place = layout.tables[name]
            columns = {**place.table.sliced, DELETED: ColumnType("boolean"), "_offset": LONG}
            return persisted(environment.keeper.stored(place, columns, few=few))

        disclosure = Disclosure(environment.log.schemas(group.avro_changelogs), environment.keys)
        return _StoredViews(environment, group, WholeTables(stored, group, disclosure, environment.small, few))

    def plan(self, view: View) -> Any:
        """The plan of a view, in which those of the views that it reads stand where their rows are read."""
        whole, result = as_written(self.environment.spark, self.group, view)
        rows = {}
        for name, read in view.tables.items():
            if isinstance(read, View):
                rows[name] = named_rows(self.environment.small, self.plan(read), f"{VIEW}{read.name}")
            else:
                rows[name] = self.tables.rows(read).alias(f"{TABLE}{name}")
        return over_rows(self.environment.small, whole, result, rows)
