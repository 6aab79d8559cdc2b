"""Runs: which generation serves, its writer's token, its progress, and the requests to its runner.

The progress row is the one home of a run's offsets: it changes in the transaction that changes the views.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.errors import DefinitionChanged, NoServingGeneration, ProjectionError
from projections.logs.offsets import filled
from projections.stores.own_tables import own_tables

Progress = Mapping[str, Mapping[int, int]]
ViewColumns = Mapping[str, Mapping[str, ColumnType]]

BUILDING: Final = "building"  # its bulk path has not come to its end
BUILT: Final = "built"  # complete, and not served yet
SERVING: Final = "serving"  # the stable view names show it
RETIRED: Final = "retired"  # served once, and kept to go back to

_ASKED: Final = frozenset({"paused", "held", "token", "holder"})


@dataclass(frozen=True)
class Run:
    """One generation of one group, and the token of its writer; an early release stored no version."""

    group: str
    generation: int
    fingerprint: str
    token: str | None = None
    version: int | None = None

    @property
    def place(self) -> str:
        """How an error names it."""
        return f"projection group {self.group}, generation {self.generation}"


@dataclass(frozen=True)
class RunState:
    """The row of a run: ``held`` by a cut-over, ``holder`` is the process that claimed it last."""

    run: Run
    status: str
    progress: Progress
    paused: bool
    held: bool
    holder: str | None
    built: Mapping[str, Any]
    updated_at: Any


def replaced_topics(state: RunState, ids: Mapping[str, str]) -> list[str]:
    """The topics that are others of their names than those the generation was built from.

    None of a generation that an earlier release built: it noted no ids.
    """
    return [topic for topic, id in state.built.get("topics", {}).items() if ids.get(topic, id) != id]


def serving_state(connection: sa.Connection, group: str) -> RunState:
    """The row of the run whose views are served; raises NoServingGeneration."""
    return serving_of(states(connection, group, SERVING), group)


def serving_of(serving: Sequence[RunState], group: str) -> RunState:
    """The first of a group's serving rows; raises NoServingGeneration where there is none."""
    if not serving:
        raise NoServingGeneration(
            f"projection group {group!r} has not been built", remedy="run its rebuild first", place=group
        )
    return serving[0]


def next_generation(connection: sa.Connection, group: str) -> int:
    """One more than the highest generation so far."""
    runs = own_tables(connection).runs
    highest = connection.scalar(sa.select(sa.func.max(runs.c.generation)).where(runs.c.group_name == group))
    return int(highest or 0) + 1


def states(connection: sa.Connection, group: str | None = None, *statuses: str, lock: bool = False) -> list[RunState]:
    """The generations of a group, or of all, in the order of their numbers; ``lock`` locks their rows."""
    runs = own_tables(connection).runs
    query = sa.select(runs).order_by(runs.c.group_name, runs.c.generation)
    query = query if group is None else query.where(runs.c.group_name == group)
    query = query.where(runs.c.status.in_(statuses)) if statuses else query
    return [_state(row) for row in connection.execute(query.with_for_update() if lock else query)]


def state(connection: sa.Connection, run: Run) -> RunState | None:
    """The row of one generation; None where it was dropped."""
    runs = own_tables(connection).runs
    row = connection.execute(sa.select(runs).where(*_is(runs, run))).one_or_none()
    return None if row is None else _state(row)


def serves(connection: sa.Connection, run: Run) -> bool:
    """Whether readers see the views of a generation."""
    stored = state(connection, run)
    return stored is not None and stored.status == SERVING


def _state(row: sa.Row[Any]) -> RunState:
    return RunState(
        Run(row.group_name, row.generation, row.fingerprint, row.token, row.version),
        row.status,
        decode_progress(row.progress or {}),
        row.paused,
        row.held,
        row.holder,
        row.built or {},
        row.updated_at,
    )


def insert_run(connection: sa.Connection, run: Run) -> None:
    """Record a generation that is being built."""
    row = {"group_name": run.group, "generation": run.generation, "fingerprint": run.fingerprint}
    row |= {"status": BUILDING, "token": run.token, "version": run.version, "holder": this_process()}
    connection.execute(sa.insert(own_tables(connection).runs).values(row))


def delete_run(connection: sa.Connection, run: Run) -> None:
    """Forget a generation."""
    runs = own_tables(connection).runs
    connection.execute(sa.delete(runs).where(*_is(runs, run)))


def update(connection: sa.Connection, run: Run, **values: Any) -> None:
    """Change the row of a run. What is asked of its runner alone is no progress, and leaves its time."""
    moved = {} if values.keys() <= _ASKED else {"updated_at": sa.func.now()}
    runs = own_tables(connection).runs
    connection.execute(sa.update(runs).where(*_is(runs, run)).values({**values, **moved}))


def set_built(connection: sa.Connection, run: Run, built: Mapping[str, Any]) -> None:
    """Note what of a generation is complete, in the transaction that completes it; ProjectionError."""
    require_token(connection, run)
    update(connection, run, built=dict(built))


def claim(connection: sa.Connection, run: Run) -> Run:
    """Put a new token on the run: the holder of the old one can no longer commit."""
    token = uuid.uuid4().hex
    update(connection, run, token=token, holder=this_process())
    return Run(run.group, run.generation, run.fingerprint, token, run.version)


def this_process() -> str:
    """How a process names itself in the rows of runs that it claims."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def read_progress(connection: sa.Connection, run: Run) -> Progress:
    """The next offset of every partition."""
    runs = own_tables(connection).runs
    stored = connection.scalar(sa.select(runs.c.progress).where(*_is(runs, run)))
    return decode_progress(stored or {})


def require_token(connection: sa.Connection, run: Run) -> None:
    """Raise ProjectionError unless our token is still on the run; it cannot be claimed before the transaction ends."""
    runs = own_tables(connection).runs
    query = sa.select(runs.c.token).where(*_is(runs, run)).with_for_update(read=True)
    if connection.scalar(query) != run.token:
        raise superseded(run)


def superseded(run: Run) -> ProjectionError:
    """The error of a writer whose run another runner has moved on."""
    return ProjectionError(
        "another runner has moved this run on, and nothing of this batch was written",
        remedy="stop one of the two runners",
        place=run.place,
        code="run-superseded",
    )


def advance(connection: sa.Connection, run: Run, start: Progress, end: Progress) -> None:
    """Lock the progress row, require our token and our start, and set the end.

    Raises ProjectionError if either differs: then another runner has applied this range.
    """
    runs = own_tables(connection).runs
    query = sa.select(runs.c.token, runs.c.progress).where(*_is(runs, run)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None or row.token != run.token or filled(decode_progress(row.progress or {}), start) != start:
        raise superseded(run)
    set_progress(connection, run, end)


def set_progress(connection: sa.Connection, run: Run, progress: Progress) -> None:
    """Write the progress of a run without other writers."""
    update(connection, run, progress=encode_progress(progress))


def is_ahead(progress: Progress, other: Progress, *, recreated: Progress | None = None) -> bool:
    """Whether a run stands at or beyond another in every partition that both read; those ``recreated`` do not count."""
    return all(
        progress[topic].get(partition, 0) >= offset or partition in (recreated or {}).get(topic, {})
        for topic, offsets in other.items()
        if topic in progress
        for partition, offset in offsets.items()
    )


def encode_progress(progress: Progress) -> dict[str, dict[str, int]]:
    """Progress as JSON keeps it: partitions are texts."""
    return {topic: {str(p): o for p, o in offsets.items()} for topic, offsets in progress.items()}


def decode_progress(stored: Mapping[str, Mapping[str, int]]) -> Progress:
    """Progress as JSON keeps it in its own form."""
    return {topic: {int(p): int(o) for p, o in offsets.items()} for topic, offsets in stored.items()}


def _is(runs: sa.Table, run: Run) -> tuple[sa.ColumnElement[bool], ...]:
    return runs.c.group_name == run.group, runs.c.generation == run.generation


def require_unchanged(group: ProjectionGroup, state: RunState, view_columns: ViewColumns) -> None:
    """Raise DefinitionChanged where a generation was built by another definition.

    A fingerprint does not see what a view function takes from elsewhere; the columns it returns may show it.
    """
    columns = {name: list(types) for name, types in view_columns.items()}
    if state.run.fingerprint == group.fingerprint() and state.built.get("columns", columns) == columns:
        return
    raise DefinitionChanged(
        f"the definition of group {group.name!r} is not the one its views were built by",
        remedy=_way_to_one_definition(group.version, built=state.run.version),
        place=state.run.place,
    )


def _way_to_one_definition(version: int, *, built: int | None) -> str:
    if built is not None and version < built:  # an old release: its rebuild would bring the old rows back
        return (
            f"start the release that has version {built} of the group, since this one has version {version}. "
            f"If factfold dev raised it, write version={built + 1} into the group and run factfold projections rebuild"
        )
    again = f"write version={version + 1} into the group, then rebuild it" if version == built else "rebuild the group"
    return f"{again}: the new definition becomes a new generation"
