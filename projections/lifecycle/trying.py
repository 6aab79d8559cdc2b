"""Try: a view by its changed definition, compared with the one that serves, before any rebuild."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.lifecycle.recomputing import Recomputation, recomputed
from projections.logs.offsets import Offsets
from projections.spark.exchange import fetched
from projections.spark.picking import with_keys
from projections.spark.views.view_functions import view_columns
from projections.stores.comparison import Copies, DifferingRow
from projections.stores.layout import ViewLayout
from projections.stores.locks import VERIFIER
from projections.stores.runs import Progress, RunState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TriedView:
    """A view by a changed definition, compared with the serving one over the columns that both have.

    Attributes:
        serving_rows: The rows that serve, of a sample those in it. None if the serving view cannot be compared.
        new_rows: The rows by the changed definition.
        differing: Some differing rows: ``one`` is the serving one, ``other`` the new one.
        added: The columns that are new, or have another type.
        removed: The columns that are missing, or have another type.
        seconds: How long the view took to compute.
        serving_seconds: How long it took when the serving generation was built, None if that was not noted.

    Examples:
        >>> tried = try_view(environment, shop_views, "orders_by_region")
        >>> tried.equal, tried.added
        (False, ('orders',))
    """

    serving_rows: int | None
    new_rows: int
    differing: tuple[DifferingRow, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    seconds: float
    serving_seconds: float | None

    @property
    def equal(self) -> bool:
        """Whether columns and rows are the same."""
        return not (self.added or self.removed or self.differing) and self.serving_rows == self.new_rows


def try_view(
    environment: Environment, group: ProjectionGroup, view: str, *, sample: int | None = None, most: int = 5
) -> TriedView:
    """Compute a view by the present definition at the serving run's progress, and compare it. Nothing of it stays.

    Args:
        environment: The connections.
        group: The group, whose definition may differ from the serving one.
        view: The name of the view.
        sample: Compare only so many keys that serve, the first ones. Rows that only the new view has are not found.
        most: Return so many differing rows of each side.

    Raises:
        NoServingGeneration: The group was not built yet.
        RunAlreadyActive: Another process verifies the group. The errors of `rebuild` are raised too.

    Examples:
        >>> try_view(environment, shop_views, "orders_by_region", sample=1_000).differing
        ()
    """
    store, columns = environment.store, view_columns(environment.spark, group)
    state = store.serving_state(group.name)
    layout = store.layout(group, state.run, columns)
    place = layout.views[group.view(view).name]
    with (
        store.exclusive(group.name, role=VERIFIER),
        environment.keeper.copies(state.run, layout, changed=True) as live,
    ):
        progress = live.take(most=sample)
        aside = live.set_aside(progress) if set(group.topics) <= set(progress) else None
        with recomputed(environment, group, _ends(environment, group, progress), aside=aside) as again:
            return _tried(again, live, place, state, sample=sample, most=most)


def _ends(environment: Environment, group: ProjectionGroup, progress: Progress) -> Offsets:
    """Where the serving run stands, and the end of a topic that it does not read."""
    with environment.log.open() as log:
        return {topic: progress.get(topic, parts) for topic, parts in log.end_offsets(list(group.topics)).items()}


def _tried(
    again: Recomputation, live: Copies, place: ViewLayout, state: RunState, *, sample: int | None, most: int
) -> TriedView:
    frame, common = again.view(place.name), live.columns.get(place.name, ())
    if common and sample is not None:
        frame = _of_keys(again, frame, place)
    added, removed = _changed_columns(place, state, common)
    noted = state.built.get("view_seconds", {}).get(place.name)
    if not common:
        begun = time.perf_counter()
        return TriedView(None, frame.count(), (), added, removed, time.perf_counter() - begun, noted)
    seconds = again.load(frame, place.recomputed_copy)
    result = live.against_recomputed(place.name, most=most)
    return TriedView(result.one.count, result.other.count, result.differing, added, removed, seconds, noted)


def _of_keys(again: Recomputation, frame: DataFrame, place: ViewLayout) -> DataFrame:
    """The rows whose key is in the copy of the serving view."""
    columns = {column: place.columns[column] for column in place.definition.key}
    stored = fetched(again.environment.store.target(place.live_copy), columns)
    return with_keys(frame, stored, columns, again.environment.small)


def _changed_columns(
    place: ViewLayout, state: RunState, common: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that only the new view has, and those that only the serving one has."""
    served = [column for column in state.built.get("columns", {}).get(place.name, ()) if not column.startswith("_")]
    both = set(common) or {*served} & place.columns.keys()
    return tuple(c for c in place.columns if c not in both), tuple(c for c in served if c not in both)
