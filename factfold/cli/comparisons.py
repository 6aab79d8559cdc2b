"""How comparisons of views look in a terminal and in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from projections import ViewComparison
    from projections.tablestore.port import DifferingRow

DIFFERS: Final = 3  # the exit code: 1 is that of every error, 2 of a command that was written wrongly


def as_plain(found: Mapping[str, ViewComparison]) -> dict[str, Any]:
    """A comparison as JSON has it."""
    return {name: dataclasses.asdict(one) | {"equal": one.equal} for name, one in found.items()}


def print_comparison(found: Mapping[str, ViewComparison]) -> None:
    """Print a comparison, with the key and both rows of what differs."""
    for name, one in found.items():
        outcome = "equal" if one.equal else "DIFFERS"
        typer.echo(f"{name}: {one.serving_rows:,} rows serving, {one.new_rows:,} new: {outcome}")
        for row in one.differing:
            print_row(row, "serving", "new")


def print_row(row: DifferingRow, one: str, other: str) -> None:
    """Print the key and both rows."""
    typer.echo(f"  at {_pairs(row.key)}")
    for name, values in ((one, row.one), (other, row.other)):
        typer.echo(f"    {name}: {'no row' if values is None else _pairs(values)}")


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
