"""Cut-over: another generation is compared with the one that serves, and serves from one moment on.

It is compared at the same offsets of every partition that both read. No reader is taken back in time: the runner of the
serving generation is held at the end of a batch, the other generation is brought to where it stands, and one
transaction that locks both rows switches, or refuses where the first is still ahead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from eventstore.closing import Closing
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.environment import Environment
from projections.errors import NotComparable
from projections.lifecycle.runner import Runner, open_runner
from projections.logs.offsets import Offsets, reached
from projections.outputs.publishing import prepare_topics
from projections.spark.views.view_functions import view_columns
from projections.stores.comparison import Copies, DifferingRow
from projections.stores.generations import drop_with_patience, hold, newest, rebuilding
from projections.stores.layout import GenerationLayout
from projections.stores.locks import runner_of
from projections.stores.runs import BUILT, RETIRED, SERVING, Progress, Run, RunState, is_ahead, replaced_topics
from projections.stores.sql import TableStore

_STILL_SECONDS: Final = 60.0  # a runner that has not moved for so long will not come to where the new generation is
_LOOK_SECONDS: Final = 0.1
_LET_GO_SECONDS: Final = 60.0  # for the runner of the generation that was retired to see it, after its batch
_HOLD_SECONDS: Final = 60.0  # the serving run is let go again, and the cut-over fails, where this is not enough


class CatchUp(Closing):
    """Opens a runner once there is something to apply: its first batch plans every query, which takes seconds."""

    def __init__(self, environment: Environment, group: ProjectionGroup, run: Run) -> None:
        self._environment = environment
        self._group = group
        self._run = run
        self._opened = ExitStack()
        self._runner: Runner | None = None

    @property
    def run(self) -> Run:
        """The run, with the token of its current writer."""
        return self._runner.held if self._runner else self._run

    @property
    def progress(self) -> Progress:
        """How far it has come."""
        return self._runner.progress if self._runner else self._environment.store.progress(self._run)

    def bring_to(self, goal: Progress) -> bool:
        """Apply batches up to ``goal`` and none beyond; returns False where whole transactions end before it."""
        while not self._is_at(goal):
            if self._open().run_once(ends=_joined(self.progress, goal)) is None:
                return False
        return True

    def bring_beyond(self, goal: Progress, *, deadline: float = math.inf) -> None:
        """Apply batches until ``goal`` is reached, the last one up to the ends of the topics; ProjectionError."""
        if not self._is_at(goal):
            self._open().catch_up(self._relevant(goal), deadline=deadline)

    def close(self) -> None:
        """Let the generation go."""
        self._opened.close()

    def _is_at(self, goal: Progress) -> bool:
        return reached(self.progress, self._relevant(goal))

    def _relevant(self, goal: Progress) -> Progress:
        return {topic: parts for topic, parts in goal.items() if topic in self._group.inputs}

    def _open(self) -> Runner:
        if self._runner is None:
            opened = open_runner(self._environment, self._group, generation=self._run.generation)
            self._runner = self._opened.enter_context(opened)
        return self._runner


def _joined(progress: Progress, goal: Progress) -> Progress:
    """The further of two offsets, in every partition of the first."""
    return {t: {p: max(o, goal.get(t, {}).get(p, o)) for p, o in parts.items()} for t, parts in progress.items()}


def was_recreated(
    environment: Environment, group: ProjectionGroup, state: RunState, ids: Mapping[str, str] | None = None
) -> Progress:
    """The progress of a run in topics that were recreated, or in partitions that end before: no run reaches it again.

    The ends are asked for after the progress was read, so a run that reads on meanwhile is not taken for one of them.
    ``ids`` are those of the topics, where they were asked for already.
    """
    others = replaced_topics(state, environment.log.topic_ids(group.topics) if ids is None else ids)
    with environment.log.open() as log:
        ends = log.end_offsets(list(group.inputs))
    replaced = {
        topic: {p: o for p, o in parts.items() if topic in others or o > ends[topic].get(p, 0)}
        for topic, parts in state.progress.items()
        if topic in ends
    }
    return {topic: parts for topic, parts in replaced.items() if parts}


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


def cut_over(environment: Environment, group: ProjectionGroup) -> Run:
    """Let the generation that was built by this definition serve. The former one stays for `rollback`.

    A former generation with personal columns is dropped, since no erasure would reach it. Raises ProjectionError,
    RunAlreadyActive or ViewInUse.

    Examples:
        >>> report = rebuild(environment, shop_views, cut_over=False)
        >>> cut_over(environment, shop_views).generation
        2
    """
    return _switch_to_newest(environment, group, BUILT, "build it: factfold projections rebuild … --no-cutover")


def rollback(environment: Environment, group: ProjectionGroup) -> Run:
    """Let the newest retired generation of this definition serve again, once it is current.

    Raises the errors of `cut_over`.

    Examples:
        >>> rollback(environment, shop_views).generation
        1
    """
    remedy = "give the definition that served before (its release, its version=); factfold projections status lists"
    return _switch_to_newest(environment, group, RETIRED, f"{remedy} the retained generations")


def _switch_to_newest(environment: Environment, group: ProjectionGroup, status: str, remedy: str) -> Run:
    store = environment.store
    with rebuilding(store, group.name):
        run = newest(store, group, status, remedy=remedy)
        prepare_topics(environment, group)
        layout = store.layout(group, run, view_columns(environment.spark, group))
        with CatchUp(environment, group, run) as catch_up:
            switch_to(environment, group, catch_up, layout)
            return catch_up.run


def switch_to(
    environment: Environment,
    group: ProjectionGroup,
    catch_up: CatchUp,
    layout: GenerationLayout,
    *,
    at_least: Offsets | None = None,
) -> None:
    """Bring a generation to where the serving one stands, and ``at_least`` to offsets, then let it serve.

    The caller is the group's rebuilder.
    """
    store = environment.store
    catch_up.bring_beyond(at_least or {})
    for serving in store.states(group.name, SERVING):
        # Most of the way without holding up the serving run.
        ids = environment.log.topic_ids(group.topics)
        catch_up.bring_beyond(_within_reach(serving.progress, was_recreated(environment, group, serving, ids)))
        with hold(store, serving.run):
            while not _is_switched(environment, group, catch_up, layout, ids):
                pass  # the runner was in the middle of a batch; it is held after it
        if ERASURES in serving.progress:
            # Its views have the values of persons open, and no erasure would ever come to it.
            drop_with_patience(store, serving.run, seconds=_LET_GO_SECONDS)
        return
    store.switch(group, _claimed(environment, catch_up), layout)


def _is_switched(
    environment: Environment,
    group: ProjectionGroup,
    catch_up: CatchUp,
    layout: GenerationLayout,
    ids: Mapping[str, str],
) -> bool:
    served = environment.store.serving_state(group.name)
    recreated = was_recreated(environment, group, served, ids)
    catch_up.bring_beyond(_within_reach(served.progress, recreated), deadline=_HOLD_SECONDS)
    return environment.store.switch(group, _claimed(environment, catch_up), layout, recreated=recreated)


def _claimed(environment: Environment, catch_up: CatchUp) -> Run:
    return catch_up.run if catch_up.run.token else environment.store.claim(catch_up.run)


def _within_reach(progress: Progress, recreated: Progress) -> dict[str, Mapping[int, int]]:
    return {t: {p: o for p, o in parts.items() if p not in recreated.get(t, {})} for t, parts in progress.items()}
