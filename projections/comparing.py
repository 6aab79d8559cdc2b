"""Comparing: a new generation against the serving one, at the same offsets of every partition both read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from projections.catching_up import CatchUp, made_anew
from projections.digest import digest_rows
from projections.environment import Environment
from projections.errors import NotComparable
from projections.group import ERASURES, ProjectionGroup
from projections.spark.view_functions import view_columns
from projections.tablestore import comparison
from projections.tablestore.comparison import DifferingRow, key_columns
from projections.tablestore.generations import newest, serving_state
from projections.tablestore.layout import GenerationLayout, ViewLayout
from projections.tablestore.runs import BUILT, Progress, Run, is_ahead
from projections.tablestore.sql import REBUILDER, SqlTableStore, runner_of

_STILL_SECONDS: Final = 60.0  # a runner that has not moved for so long will not come to where the new generation is
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class ViewComparison:
    """One view of the new generation against the serving one, over the columns that both have.

    Digests are None where a column is a floating-point number, which has none. Of a differing row, ``one`` is the
    serving generation's, ``other`` the new one's.
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
    """Compare the generation that was built, and does not serve yet, with the serving one, view by view.

    The serving runner may go on. Raises GenerationMissing, NoServingGeneration, NotComparable, RunAlreadyActive.
    """
    store = environment.store
    with store.exclusive(group.name, role=REBUILDER):
        built = newest(store, group, BUILT, remedy="build one: factfold projections rebuild … --no-cutover")
        layout = store.layout(group, built, view_columns(environment.spark, group))
        with CatchUp(environment, group, built) as catch_up:
            return compare(environment, group, catch_up, layout)


def compare(
    environment: Environment, group: ProjectionGroup, catch_up: CatchUp, layout: GenerationLayout
) -> Mapping[str, ViewComparison]:
    """Copy the serving views as of one moment, bring the new generation to exactly there, and compare the two."""
    store = environment.store
    serving = serving_state(store, group.name).run
    if anew := made_anew(environment, group, store.progress(serving)):
        raise _not_comparable(f"{', '.join(anew)}: the topic was made anew since it was served", serving)
    common = comparison.common_columns(store, serving, layout)
    if not common:
        raise _not_comparable("no view of the new generation has its key in the serving one", serving)
    _wait_for_serving(store, serving, catch_up.progress)
    try:
        at = comparison.copy_serving(store, serving, layout, common)
        if not catch_up.bring_to(at):
            raise _not_comparable("whole transactions end before where the serving generation stands", serving)
        return {name: _compare(store, layout.views[name], columns) for name, columns in common.items()}
    finally:
        comparison.drop_copies(store, layout)


def _wait_for_serving(store: SqlTableStore, serving: Run, wanted: Progress) -> None:
    """Wait while the serving run is behind the new one and moves on; raise NotComparable where it does not."""
    wanted = {topic: parts for topic, parts in wanted.items() if topic != ERASURES}
    seen, since = store.progress(serving), time.monotonic()
    while not is_ahead(seen, wanted):
        if not _moves(store, serving) or time.monotonic() - since > _STILL_SECONDS:
            raise _not_comparable("the serving generation is behind the new one, and no runner moves it on", serving)
        time.sleep(_LOOK_SECONDS)
        found = store.progress(serving)
        seen, since = (found, time.monotonic()) if found != seen else (seen, since)


def _moves(store: SqlTableStore, serving: Run) -> bool:
    state = store.state(serving)
    return store.is_held(serving.group, role=runner_of(serving)) and state is not None and not state.paused


def _not_comparable(cause: str, serving: Run) -> NotComparable:
    remedy = "let the serving generation's runner run, then factfold projections diff; or cut over without"
    return NotComparable(cause, remedy=remedy, place=serving.place)


def _compare(store: SqlTableStore, view: ViewLayout, columns: tuple[str, ...]) -> ViewComparison:
    serving, new = (_digest(store, view, columns, copied=copied) for copied in (True, False))
    key = key_columns(view.key)
    differing = comparison.differing_rows(store, view.live_copy, view.view, key=key, columns=columns)
    return ViewComparison(columns, serving[1], new[1], serving[0], new[0], differing)


def _digest(
    store: SqlTableStore, view: ViewLayout, columns: tuple[str, ...], *, copied: bool
) -> tuple[str | None, int]:
    kinds = {column: view.columns[column] for column in columns}
    table = view.live_copy if copied else view.view
    if any(kind.kind == "double" for kind in kinds.values()):
        return None, comparison.count(store, table)
    return digest_rows(store.target(table).fetch(kinds, order_by=view.key))
