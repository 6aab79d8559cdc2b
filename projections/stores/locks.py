"""The locks of a group's processes: their roles, and the error of a role that another process holds."""

from __future__ import annotations

from typing import Final

from projections.errors import RunAlreadyActive
from projections.stores.runs import Run

REBUILDER: Final = "rebuild"  # makes, compares, switches and drops generations: one at a time
VERIFIER: Final = "verify"


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
