"""Which rows a batch of changes can affect: the references of a view, put in the order in which they are followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from projections.declaring.any_table import key_of
from projections.declaring.tables import EVENT_TIME
from projections.declaring.views import Reference, View
from projections.errors import InvalidDefinition


@dataclass(frozen=True)
class ViewPlan:
    """The walks over a view's references.

    ``upwards`` lists the tables leaves first: a table's affected keys are its changed keys and those whose foreign
    key points to an affected key of a table before it. ``downwards`` is the reverse: the slice of a table is what the
    slices before it point to.
    """

    view: View
    upwards: tuple[str, ...]

    @property
    def downwards(self) -> tuple[str, ...]:
        """The tables, root first."""
        return tuple(reversed(self.upwards))

    def references_from(self, table: str) -> Sequence[Reference]:
        """The foreign keys a table holds."""
        return [r for r in self.view.references if r.source == table]

    def references_to(self, table: str) -> Sequence[Reference]:
        """The foreign keys that point to a table."""
        return [r for r in self.view.references if r.target == table]

    def indexes(self, table: str) -> tuple[tuple[str, ...], ...]:
        """Columns by which rows are looked up: when a referenced row changes, when a person's key is destroyed.

        Versions reach on from a time.
        """
        pointers = [self._index(r) for r in self.references_from(table)]
        return tuple(dict.fromkeys([*pointers, *((key_of(c),) for c in self.view.table(table).personal)]))

    def _index(self, reference: Reference) -> tuple[str, ...]:
        to_versions = self.view.tables[reference.target].holds_versions
        return (*reference.columns, EVENT_TIME) if to_versions else reference.columns


def plan(view: View) -> ViewPlan:
    """Order the tables of a view leaves first; a cycle of references is refused with InvalidDefinition."""
    ordered: list[str] = []
    remaining = list(view.tables)
    while remaining:
        ready = [t for t in remaining if all(r.target in ordered for r in view.references if r.source == t)]
        if not ready:
            raise InvalidDefinition(
                f"the references of view {view.name!r} form a cycle through {', '.join(remaining)}",
                remedy="references lead from the root to rows that are looked up. For rows of the same table, take it"
                " as two parameters, one under another name in tables={…}",
            )
        ordered += ready
        remaining = [t for t in remaining if t not in ready]
    return ViewPlan(view, tuple(ordered))
