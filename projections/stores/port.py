"""The port of a table store: runs and generations of projection groups, and which of them serves.

The form of its rows is a store's own. The work of Spark on them is in `projections.spark.keeping`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.errors import DefinitionChanged, GenerationMissing, RunAlreadyActive
from projections.stores.layout import GenerationLayout
from projections.stores.runs import SERVING, Progress, Run, RunState, serving_of, superseded

if TYPE_CHECKING:
    import sqlalchemy as sa

ViewColumns = Mapping[str, Mapping[str, ColumnType]]

REBUILDER: Final = "rebuild"  # makes, compares, switches and drops generations: one at a time
VERIFIER: Final = "verify"


@dataclass(frozen=True)
class DifferingRow:
    """A key at which two tables differ, and what each has there; None for no row."""

    key: Mapping[str, Any]
    one: Mapping[str, Any] | None
    other: Mapping[str, Any] | None


@dataclass(frozen=True)
class Rows:
    """What a comparison says of one of its sides: the digest, None where a column has none, and how many rows."""

    digest: str | None
    count: int


@dataclass(frozen=True)
class Difference:
    """Two sides of a comparison, and some rows that differ: at most five of each side."""

    one: Rows
    other: Rows
    differing: tuple[DifferingRow, ...]


class Transactions(Protocol):
    """A database that is spoken to by SQL."""

    def transaction(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """A transaction that lasts."""

    def looking(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """A look, each query by itself, waiting for no writer."""


class TableStore(ABC):
    """State and views of projection groups, generation by generation, and the runs that keep them."""

    @property
    @abstractmethod
    def place(self) -> str:
        """How an error names the store: without its password."""

    @abstractmethod
    def prepare(self) -> None:
        """Make what the store itself needs, or add what an earlier release did not have."""

    @abstractmethod
    def close(self) -> None:
        """Let connections go."""

    @abstractmethod
    def check_master(self, master: str) -> None:
        """Refuse a Spark whose executors could not reach the store; raises UnsupportedMaster."""

    @abstractmethod
    def exclusive(self, group: str, *, role: str) -> contextlib.AbstractContextManager[None]:
        """Hold a role of a group (``REBUILDER``, ``runner_of``) for the length of the block; raises RunAlreadyActive.

        A killed process loses what it held.
        """

    @abstractmethod
    def is_held(self, group: str, *, role: str) -> bool:
        """Whether any process holds a role of a group."""

    @abstractmethod
    def states(self, group: str | None = None, *statuses: str) -> list[RunState]:
        """The rows of a group's generations, or of all groups', in the order of their numbers."""

    @abstractmethod
    def state(self, run: Run) -> RunState | None:
        """The row of a generation; None where it was dropped."""

    @abstractmethod
    def claim(self, run: Run) -> Run:
        """Take the run over: any other holder's next commit fails."""

    @abstractmethod
    def record(
        self,
        run: Run,
        *,
        built: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        status: str | None = None,
    ) -> None:
        """Note what has become of a run we hold, all of it at once; RunSuperseded."""

    @abstractmethod
    def set_paused(self, group: str, *, paused: bool) -> Run:
        """Ask the serving run's runner to stand still, or to go on; NoServingGeneration."""

    @abstractmethod
    def set_held(self, run: Run, *, held: bool) -> None:
        """Ask a run's runner to wait for a cut-over; it counts only while the group has a rebuilder."""

    @abstractmethod
    def layout(self, group: ProjectionGroup, run: Run, view_columns: ViewColumns) -> GenerationLayout:
        """The tables of a generation."""

    @abstractmethod
    def begin_generation(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """Make a new generation, without rows; those that never served are removed."""

    @abstractmethod
    def switch(
        self, group: ProjectionGroup, run: Run, layout: GenerationLayout, *, recreated: Progress | None = None
    ) -> bool:
        """Let a generation serve in one commit, unless readers would go back in time.

        Returns False, and changes nothing, where the serving run is ahead in any partition; those ``recreated`` do not
        count. RunSuperseded where our token is no longer on the run.
        """

    @abstractmethod
    def drop(self, run: Run) -> None:
        """Drop a generation's tables and its row."""

    def let_go(self, run: Run, layout: GenerationLayout, *, before: int, most: int) -> Mapping[str, int]:
        """Let go of deleted rows that were deleted up to ``before``, in seconds since 1970, of a run we hold.

        At most so many of each table, in a short transaction, where there are such; returns how many deletions were
        settled, by table, each once. RunSuperseded.
        """
        return {}

    def forget(self, run: Run, layout: GenerationLayout, *, upto: int | None, most: int) -> Mapping[str, int]:
        """Forget rows of streams with a promise, and what was made of them; returns how many, by table.

        The run is one that we hold. ``upto`` is where the floor is from now on, None where it stays. At most so many
        rows of each table go, in a short transaction. RunSuperseded.
        """
        return {}

    def retained(self, run: Run) -> Mapping[str, Any]:
        """Up to which time ``forget`` has forgotten rows, how many by table, and the events set aside by kind."""
        return {}

    def settled(self, run: Run) -> Mapping[str, int]:
        """How many deletions ``let_go`` has settled so far, by table."""
        return {}

    @property
    @abstractmethod
    def outbox(self) -> Transactions:
        """Where rows of views wait for their topics and Delta tables, in tables of `outbox_tables`."""

    def waiting(self) -> Mapping[str, Mapping[str, int]]:
        """The rows that wait to be published, by group and topic."""
        return {}

    def final_results(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """By group and view: results given out, late changes, up to which time results are final, and the next one."""
        return {}

    def progress(self, run: Run) -> Progress:
        """The next offset of every partition."""
        state = self.state(run)
        return {} if state is None else state.progress

    def serving_state(self, group: str) -> RunState:
        """The row of the serving generation; raises NoServingGeneration."""
        return serving_of(self.states(group, SERVING), group)

    def serving(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """The serving run of a group; raises NoServingGeneration or DefinitionChanged."""
        return self._unchanged(group, self.serving_state(group.name), view_columns)

    def generation(
        self, group: ProjectionGroup, number: int, view_columns: ViewColumns
    ) -> tuple[Run, GenerationLayout]:
        """A generation of the group's present definition; raises GenerationMissing or DefinitionChanged."""
        state = self.state(Run(group.name, number, ""))
        if state is None:
            raise GenerationMissing(
                f"projection group {group.name!r} has no generation {number}",
                remedy="list the generations: factfold projections status",
                place=group.name,
            )
        return self._unchanged(group, state, view_columns)

    def _unchanged(
        self, group: ProjectionGroup, state: RunState, view_columns: ViewColumns
    ) -> tuple[Run, GenerationLayout]:
        require_unchanged(group, state, view_columns)
        return state.run, self.layout(group, state.run, view_columns)

    def serve(self, group: ProjectionGroup, run: Run, layout: GenerationLayout, progress: Progress) -> None:
        """Let a generation serve that is built up to ``progress``; raises RunSuperseded where it is behind."""
        self.record(run, progress=progress)
        if not self.switch(group, run, layout):
            raise superseded(run)

    def generations(self) -> list[dict[str, Any]]:
        """Every generation of every group, with its status, progress and version."""
        self.prepare()
        rows, final = self.waiting(), self.final_results()
        return [
            {
                **self._standing(state),
                "deletions_settled": self.settled(state.run),
                "retained": self.retained(state.run),
                "topics": rows.get(state.run.group, {}) if state.status == SERVING else {},
                "final_results": final.get(state.run.group, {}) if state.status == SERVING else {},
                **_built(state),
            }
            for state in self.states()
        ]

    def standing(self) -> list[dict[str, Any]]:
        """The same of a store that was prepared, for frequent looks: by what it was built, and nothing counted."""
        rows = self.waiting()
        return [
            {
                **self._standing(state),
                "topics": rows.get(state.run.group, {}) if state.status == SERVING else {},
                **_built(state),
                "fingerprint": state.run.fingerprint,
                **{name: state.built.get(name, {}) for name in ("columns", "references")},
            }
            for state in self.states()
        ]

    def _standing(self, state: RunState) -> dict[str, Any]:
        return {
            "group": state.run.group,
            "generation": state.run.generation,
            "version": state.run.version,
            "status": state.status,
            "paused": state.paused,
            "holder": state.holder if self.is_held(state.run.group, role=runner_of(state.run)) else None,
            "progress": state.progress,
        }


def _built(state: RunState) -> dict[str, Any]:
    loaded = [name for kind in ("tables", "views") for name in state.built.get(kind, {})]
    return {"loaded": loaded, "updated_at": state.updated_at}


def runner_of(run: Run) -> str:
    """The role of the runner that applies live batches to a generation."""
    return str(run.generation)


def already_active(group: str, role: str) -> RunAlreadyActive:
    """The error of a second runner, or of a second rebuild."""
    if role == REBUILDER:
        return RunAlreadyActive(
            f"another rebuild, cut-over or comparison holds projection group {group!r}",
            remedy="wait for its end, or stop it",
            place=group,
        )
    if role == VERIFIER:
        return RunAlreadyActive(
            f"another process verifies projection group {group!r}", remedy="wait for its end", place=group
        )
    return RunAlreadyActive(
        f"another runner holds projection group {group!r}, generation {role}",
        remedy="stop it first, or let it go on: one runner keeps a generation's views",
        place=group,
    )


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
