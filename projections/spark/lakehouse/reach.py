"""Which keys of a view's tables a batch reaches, and the rows that its function needs for them.

The same walks as `projections.stores.affected` and `projections.stores.slices` make in SQL, as joins of what
the batch brings with the stored rows at the versions that the ledger names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from projections.declaring.any_table import AnyTable
from projections.declaring.views import View
from projections.planning.planner import ViewPlan
from projections.spark.lakehouse.materialized import Materialized, all_of, materialized, union, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RoleRows:
    """What a parameter of a view stands for: rows as they are stored, and those that a batch brings, some deleted."""

    table: AnyTable
    stored: DataFrame
    staged: DataFrame

    @property
    def nullable(self) -> bool:
        """Whether a part of the key may be null."""
        return self.table.key_may_be_null

    @property
    def there(self) -> DataFrame:
        """The stored rows that are not deleted."""
        return self.stored.where("NOT _deleted") if "_deleted" in self.stored.columns else self.stored

    @property
    def coming(self) -> DataFrame:
        """The staged rows that are not deletions."""
        return self.staged.where("NOT _deleted")

    def keys(self, rows: DataFrame) -> DataFrame:
        """The keys of some rows."""
        return rows.select(*self.table.key)


@dataclass
class Reach:
    """The keys that a batch reaches, by the view's tables; ``affected`` grows while it is found."""

    view: View
    plan: ViewPlan
    roles: Mapping[str, RoleRows]
    affected: dict[str, Materialized] = field(default_factory=dict)

    def find(self) -> int:
        """Find the keys and return the number of root keys, groups or sides among them."""
        root = self.view.root
        if self.view.by:
            self.affected = dict.fromkeys(self.view.tables, materialized(self._partitions()))
        else:
            for name in self.plan.upwards:
                self.affected[name] = materialized(self._reached(name).distinct())
            if self.view.peers:
                self._share_keys()
            if self.view.unmatched:
                self._close_over_sides()
        return sum(self.affected[name].count for name in {root, *(side.table for side in self.view.unmatched)})

    def slices(self) -> dict[str, DataFrame]:
        """The affected root rows, or all rows of affected groups, and the rows they point to, as they will be."""
        ready: dict[str, DataFrame] = {}
        for name in self.plan.downwards:
            cut = self._cut(name, ready)
            # What nothing is looked up by is used once: by the function.
            ready[name] = materialized(cut).rows if self.plan.references_from(name) else cut
        return ready

    def _partitions(self) -> DataFrame:
        """The partitions that changed rows of any table were in, and those they are in now."""
        by = self.view.by
        frames: list[DataFrame] = []
        for role in self.roles.values():
            before = within(role.there, role.table.key, role.keys(role.staged), nullable=role.nullable)
            frames += [before.select(*by), role.coming.select(*by)]
        return union(frames).distinct()

    def _reached(self, name: str) -> DataFrame:
        role = self.roles[name]
        pointing = [self._referencing(name, r.columns, r.target) for r in self.plan.references_from(name)]
        return union([role.keys(role.staged), *pointing])

    def _referencing(self, name: str, columns: Sequence[str], target: str) -> DataFrame:
        """The keys of the stored rows that point to an affected row."""
        role = self.roles[name]
        return role.keys(within(role.stored, columns, self.affected[target].rows))

    def _share_keys(self) -> None:
        """Let each of several roots have the keys that the others reach: they are keys of the same rows of the view."""
        shared = materialized(union([self.affected[name].rows for name in self.view.roots]).distinct())
        for name in self.view.roots:
            self.affected[name] = Materialized(shared.rows.toDF(*self.roles[name].table.key), shared.count)

    def _close_over_sides(self) -> None:
        """Add the sides that affected rows refer to, before or after the batch, and every row that leads to them."""
        towards = self.plan.towards_sides
        for name in towards:
            references = [r for r in self.plan.references_to(name) if r.source in towards]
            self._add(name, [keys for r in references for keys in self._referenced(r.source, r.columns, name)])
        for name in reversed(towards):
            references = [r for r in self.plan.references_from(name) if r.target in towards]
            self._add(name, [self._referencing(name, r.columns, r.target) for r in references])

    def _referenced(self, source: str, columns: Sequence[str], target: str) -> list[DataFrame]:
        """What affected rows point to, as they were and as they will be."""
        role, key = self.roles[source], self.roles[target].table.key
        reached = self.affected[source].rows
        return [
            _pointers(within(rows, role.table.key, reached, nullable=role.nullable), columns, key)
            for rows in (role.stored, role.staged)
        ]

    def _add(self, name: str, frames: Sequence[DataFrame]) -> None:
        if frames:
            self.affected[name] = materialized(union([self.affected[name].rows, *frames]).distinct())

    def _cut(self, name: str, slices: Mapping[str, DataFrame]) -> DataFrame:
        """Stored rows overlaid with those that the batch brings."""
        role = self.roles[name]
        by, keys = self._lookup(name, slices)
        nullable = role.nullable or bool(self.view.by)
        stored = within(role.there, role.table.key, role.keys(role.staged), nullable=role.nullable, how="left_anti")
        cut = [within(rows, by, keys, nullable=nullable) for rows in (role.coming, stored)]
        return union([rows.select(*role.table.sliced) for rows in cut])

    def _lookup(self, name: str, slices: Mapping[str, DataFrame]) -> tuple[Sequence[str], DataFrame]:
        """The columns by which rows are looked up, and the keys to look up."""
        if name in self.view.roots:
            return self.view.by or self.roles[name].table.key, self.affected[name].rows
        key = self.roles[name].table.key
        parts = [_pointers(slices[r.source], r.columns, key) for r in self.plan.references_to(name)]
        if self.view.unmatched and name in self.plan.towards_sides:
            parts.append(self.affected[name].rows)
        return key, union(parts).distinct()


def _pointers(rows: DataFrame, columns: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Foreign keys of rows, those without a null, as keys of the table they point to."""
    held = rows.where(all_of([F.col(c).isNotNull() for c in columns]))
    return held.select(*(F.col(c).alias(k) for c, k in zip(columns, key, strict=True)))
