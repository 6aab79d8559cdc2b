"""The views of a group, computed by Spark from its log up to given offsets: to verify, to try, to look back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.tables import Table
from projections.declaring.views import View
from projections.environment import Environment
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.set_aside import SetAside
from projections.spark.bulk import WholeTables, whole_tables
from projections.spark.failures import described
from projections.spark.judging import bad_records
from projections.spark.picking import with_values
from projections.spark.reading.records import from_the_beginning, require_inputs
from projections.spark.views.view_functions import personal_columns, view_columns
from projections.stores.behind_rows import Kinds, column_of, typed
from projections.stores.runs import ViewColumns

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pyspark.sql import DataFrame

_LIMIT: Final = 20


@dataclass(frozen=True)
class Recomputation:
    """A group's tables and views as its log gives them, computed when they are asked for."""

    environment: Environment
    group: ProjectionGroup
    columns: ViewColumns
    tables: WholeTables
    rows: int  # of all tables, at most

    def view(self, name: str) -> DataFrame:
        """The rows of a view of the run, with its partial aggregates."""
        return self.tables.apply(self.group.view(name), self.columns[name])

    def load(self, frame: DataFrame, table: sa.Table) -> float:
        """Load rows of a view into a table of the store that has no readers; returns the seconds it took."""
        begun = time.perf_counter()
        self.environment.keeper.load(frame, table, rows=self.rows)
        return time.perf_counter() - begun


@contextmanager
def recomputed(
    environment: Environment, group: ProjectionGroup, ends: Offsets, *, aside: SetAside | None = None
) -> Iterator[Recomputation]:
    """Compute the group from the beginning of its log to ``ends``, without records set ``aside``.

    By default these are the ones that a rebuild would set aside. Raises the errors of `rebuild`.
    """
    require_inputs(environment, group)
    columns = view_columns(environment.spark, group)
    offsets = up_to(environment, group, ends)
    schemas = environment.log.schemas(group.avro_changelogs)
    with described(f"projection group {group.name}"):
        if aside is None:
            aside = bad_records(environment, group, offsets, schemas, known=SetAside.nothing())
        with whole_tables(environment, group, offsets, schemas, aside=aside) as tables:
            rows = offsets.without(ERASURES).records * len(group.tables)
            yield Recomputation(environment, group.resolved(columns), columns, tables, rows)


def up_to(environment: Environment, group: ProjectionGroup, ends: Offsets) -> OffsetRange:
    """The log of a group up to given offsets; OffsetsLost."""
    with environment.log.open() as reader:
        return from_the_beginning(reader.beginning_offsets(list(group.inputs)), ends)


@dataclass(frozen=True)
class ComputedRows:
    """The rows of a recomputation, as a walk from a view's row to its sources asks for them."""

    past: Recomputation

    def built(self, view: View) -> View:
        """As the plan has it."""
        return next((known for known in self.past.group.all_views if known.name == view.name), view)

    def typed(self, view: View, key: Mapping[str, Any]) -> dict[str, Any]:
        """As Spark has them; InvalidDefinition."""
        return {column: typed(column_of(view, column), column, value) for column, value in key.items()}

    def of_view(self, view: View, key: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows of a view with a key."""
        return with_values(self.past.view(view.name), self.typed(view, key), most=_LIMIT)

    def of_table(self, table: Table, conditions: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows of a table, deleted ones too."""
        return with_values(self.past.tables.frame(self.past.group.name_of(table)), conditions, most=_LIMIT)

    def personal(self, kind: Kinds, name: str, columns: Collection[str], key: Sequence[str]) -> tuple[str, ...]:
        """As the plan tells."""
        declared = self.past.group.declared or self.past.group
        known = personal_columns(self.past.environment.spark, declared)
        found = known[name] if kind == "views" else self.past.group.tables[name].personal
        return tuple(column for column in columns if column in found and column not in key)
