"""Comparing: a new generation against the serving one, at the same offsets of every partition both read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from projections.declaring.group import ERASURES, ProjectionGroup
from projections.environment import Environment
from projections.errors import NotComparable
from projections.lifecycle.catching_up import CatchUp, was_recreated
from projections.spark.views.view_functions import view_columns
from projections.stores.comparison import Copies
from projections.stores.generations import newest, rebuilding
from projections.stores.layout import GenerationLayout
from projections.stores.roles import DifferingRow, runner_of
from projections.stores.runs import BUILT, SERVING, Progress, Run, is_ahead
from projections.stores.sql import TableStore

_STILL_SECONDS: Final = 60.0  # a runner that has not moved for so long will not come to where the new generation is
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class ViewComparison:
    """A view of the new generation compared with the serving one, over the columns that both have.

    Attributes:
        serving_rows: The rows of the serving generation.
        new_rows: The rows of the new one.
        serving_digest: The digest of the serving rows, None if a column is a floating-point number.
        new_digest: The digest of the new rows.
        differing: Some differing rows: ``one`` is the serving generation's, ``other`` the new one's.

    Examples:
        >>> compared = diff(environment, shop_views)["orders_by_region"]
        >>> compared.equal, compared.differing
        (True, ())
    """

    columns: tuple[str, ...]
    serving_rows: int
    new_rows: int
    serving_digest: str | None
    new_digest: str | None
    differing: tuple[DifferingRow, ...]

    @property
    def equal(self) -> bool:
        """Whether every row agrees."""
        counts, digests = self.serving_rows == self.new_rows, self.serving_digest == self.new_digest
        return counts and digests and not self.differing


def diff(environment: Environment, group: ProjectionGroup) -> Mapping[str, ViewComparison]:
    """Compare the generation that is built and does not serve yet with the serving one. The serving runner may go on.

    Raises ProjectionError, NoServingGeneration, NotComparable or RunAlreadyActive.

    Returns:
        For each view: `equal`, `serving_rows`, `new_rows`, both digests, and some rows in `differing`.

    Examples:
        >>> report = rebuild(environment, shop_views, cut_over=False)
        >>> all(compared.equal for compared in diff(environment, shop_views).values())
        True
    """
    store = environment.store
    with rebuilding(store, group.name):
        _require_serving(store, group)
        built = newest(store, group, BUILT, remedy="build one: factfold projections rebuild … --no-cutover")
        layout = store.layout(group, built, view_columns(environment.spark, group))
        with CatchUp(environment, group, built) as catch_up:
            return compare(environment, group, catch_up, layout)


def _require_serving(store: TableStore, group: ProjectionGroup) -> None:
    if not store.states(group.name, SERVING) and store.states(group.name, BUILT):
        raise NotComparable(
            f"no generation of projection group {group.name!r} serves yet, and there is nothing to compare with",
            remedy="let it serve (factfold projections cutover), then recompute it (factfold projections verify)",
            place=store.place,
        )


def compare(
    environment: Environment, group: ProjectionGroup, catch_up: CatchUp, layout: GenerationLayout
) -> Mapping[str, ViewComparison]:
    """Copy the serving views as of one moment, bring the new generation to exactly there, and compare the two."""
    store = environment.store
    state = store.serving_state(group.name)
    serving = state.run
    if recreated := was_recreated(environment, group, state):
        raise _not_comparable(f"{', '.join(recreated)}: the topic was created again since it was served", serving)
    with environment.keeper.copies(serving, layout) as copies:
        if not copies.columns:
            raise _not_comparable("no view of the new generation has its key in the serving one", serving)
        _wait_for_serving(store, serving, catch_up.progress)
        if not catch_up.bring_to(copies.take()):
            raise _not_comparable("whole transactions end before where the serving generation stands", serving)
        return {name: _compare(copies, name) for name in copies.columns}


def _wait_for_serving(store: TableStore, serving: Run, target: Progress) -> None:
    """Wait while the serving run is behind the new one and moves on; raise NotComparable where it does not."""
    target = {topic: parts for topic, parts in target.items() if topic != ERASURES}
    seen, since = store.progress(serving), time.monotonic()
    while not is_ahead(seen, target):
        if not _moves(store, serving) or time.monotonic() - since > _STILL_SECONDS:
            raise _not_comparable("the serving generation is behind the new one, and no runner moves it on", serving)
        time.sleep(_LOOK_SECONDS)
        progress = store.progress(serving)
        seen, since = (progress, time.monotonic()) if progress != seen else (seen, since)


def _moves(store: TableStore, serving: Run) -> bool:
    state = store.state(serving)
    return store.is_held(serving.group, role=runner_of(serving)) and state is not None and not state.paused


def _not_comparable(cause: str, serving: Run) -> NotComparable:
    remedy = "let the serving generation's runner run, then factfold projections diff; or cut over without"
    return NotComparable(cause, remedy=remedy, place=serving.place)


def _compare(copies: Copies, view: str) -> ViewComparison:
    result = copies.against_stored(view)
    serving, new, columns = result.one, result.other, tuple(copies.columns[view])
    return ViewComparison(columns, serving.count, new.count, serving.digest, new.digest, result.differing)
