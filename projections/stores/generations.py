"""Looking after a group's generations: which one a command means, pausing and holding their runs, dropping them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import stamina

from projections.declaring.group import ProjectionGroup
from projections.errors import ProjectionError, RunAlreadyActive
from projections.stores.locks import REBUILDER, runner_of
from projections.stores.runs import BUILDING, BUILT, RETIRED, SERVING, Run, ViewColumns, require_unchanged
from projections.stores.sql import TableStore


def newest(store: TableStore, group: ProjectionGroup, status: str, *, remedy: str) -> Run:
    """The newest generation in a status that was built by the given definition; raises ProjectionError."""
    candidates = [state.run for state in store.states(group.name, status)]
    ours = [run for run in candidates if run.fingerprint == group.fingerprint()]
    if not ours:
        others = f": those there are were built by another one ({_listed(candidates)})" if candidates else ""
        raise _missing(group.name, f"no generation of this definition of {group.name!r} is {status}{others}", remedy)
    return ours[-1]


def refuse_changed(store: TableStore, group: ProjectionGroup, view_columns: ViewColumns) -> None:
    """Raise DefinitionChanged where another definition has served under the same version."""
    for state in store.states(group.name, SERVING, RETIRED):
        if state.run.version == group.version:
            require_unchanged(group, state, view_columns)


@contextmanager
def rebuilding(store: TableStore, group: str) -> Iterator[None]:
    """Be the group's rebuilder for the length of the block; RunAlreadyActive.

    A hold that a killed rebuilder left counts for as long as there is another one, so it is taken back first.
    """
    with store.exclusive(group, role=REBUILDER):
        for state in store.states(group, SERVING):
            if state.held:
                store.set_held(state.run, held=False)
        yield


@contextmanager
def hold(store: TableStore, run: Run) -> Iterator[None]:
    """Let a run's runner wait at the end of its batch, for the length of the block; the caller is the rebuilder."""
    try:
        store.set_held(run, held=True)
        yield
    finally:
        store.set_held(run, held=False)


def drop(store: TableStore, group: str, *, generation: int | None = None) -> list[int]:
    """Drop the generations that served once, or the given one, which must not serve; returns their numbers.

    Raises ProjectionError, and RunAlreadyActive while a rebuild or a runner is at one.
    """
    with rebuilding(store, group):
        require_known(group, every := store.states(group))
        droppable = [RETIRED] if generation is None else [BUILDING, BUILT, RETIRED]
        chosen = [s.run for s in every if s.status in droppable and generation in (None, s.run.generation)]
        if generation is not None and not chosen:
            cause = f"projection group {group!r} has no generation {generation} that does not serve"
            raise _missing(group, cause, "factfold projections status lists those there are")
        for run in chosen:
            _drop(store, run)
    return [run.generation for run in chosen]


def require_known(group: str, states: Sequence[object]) -> None:
    """Raise ProjectionError where there is nothing of a group."""
    if not states:
        raise _missing(group, f"there is no projection group {group!r} here", "factfold projections list names them")


def _drop(store: TableStore, run: Run) -> None:
    with store.exclusive(run.group, role=runner_of(run)):
        store.drop(run)


def drop_with_patience(store: TableStore, run: Run, *, seconds: float) -> None:
    """Drop a generation once its runner has let it go; raises RunAlreadyActive where it does not."""
    for attempt in stamina.retry_context(on=RunAlreadyActive, attempts=None, timeout=seconds, wait_max=0.5):
        with attempt:
            _drop(store, run)


def _listed(runs: list[Run]) -> str:
    return ", ".join(f"generation {run.generation}, version {run.version}" for run in runs)


def _missing(group: str, cause: str, remedy: str) -> ProjectionError:
    return ProjectionError(cause, remedy=remedy, place=group, code="generation-missing")
