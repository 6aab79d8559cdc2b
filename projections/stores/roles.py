"""Roles of a group's processes, and what they share without a driver: transactions, rows that differ, errors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.errors import DefinitionChanged, RunAlreadyActive
from projections.stores.runs import Run, RunState

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
