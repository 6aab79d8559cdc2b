"""Cut-over: another generation serves from one moment on, and no reader is taken back in time.

The runner of the serving generation is held at the end of a batch, the other generation is brought to where it stands,
and one transaction that locks both rows switches, or refuses where the first is still ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from projections.declaring.group import ERASURES, ProjectionGroup
from projections.environment import Environment
from projections.lifecycle.catching_up import CatchUp, was_recreated
from projections.logs.offsets import Offsets
from projections.outputs.publishing import prepare_topics
from projections.spark.views.view_functions import view_columns
from projections.stores.generations import drop_with_patience, hold, newest, rebuilding
from projections.stores.layout import GenerationLayout
from projections.stores.runs import BUILT, RETIRED, SERVING, Progress, Run

_LET_GO_SECONDS: Final = 60.0  # for the runner of the generation that was retired to see it, after its batch
_HOLD_SECONDS: Final = 60.0  # the serving run is let go again, and the cut-over fails, where this is not enough


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
