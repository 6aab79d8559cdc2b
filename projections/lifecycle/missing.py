"""Why a view that serves has no row of a key: from its rows of state, through the operators of its own query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eventstore.delivery.source import MASK
from projections.declaring.columns import LONG, ColumnType
from projections.declaring.group import ProjectionGroup
from projections.declaring.views import View
from projections.environment import Environment
from projections.errors import InvalidDefinition
from projections.spark.bulk import WholeTables, persisted
from projections.spark.exchange import are_few
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.missing import DELETED, TABLE, VIEW, Dropped, dropped, named_rows, over_rows
from projections.spark.views.view_functions import as_written, view_columns

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
    rows = _StoredViews.of(environment, group)
    try:
        found = dropped(environment.small, rows.plan(group.view(view)), key, f"{VIEW}{view}")
    finally:
        rows.tables.release()
    return list(map(rows.masked, found))


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

    def masked(self, found: Dropped) -> Dropped:
        """Without values that may be of a person: of a group that has any, only plain columns of tables are shown."""
        tables = self.group.tables.values()
        personal = {column for table in tables for column in table.personal}
        plain = {column for table in tables for column in table.columns} - personal
        if not personal:
            return found
        shown = ({c: v if c in plain or c.startswith("_") else MASK for c, v in row.items()} for row in found.values)
        condition = found.condition if plain.issuperset(found.reads) else MASK
        return replace(found, values=tuple(shown), condition=condition)
