"""How comparisons of views look in a terminal and in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from eventstore.delivery.masking import MASK
from factfold import on_demand
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from projections import Environment, ProjectionGroup, ViewComparison, ViewVerdict
    from projections.stores.port import DifferingRow

DIFFERS: Final = 3  # the exit code of an answer that is not "all is well": 1 is an error's, 2 that of wrong usage

Compared = TypeVar("Compared", "ViewComparison", "ViewVerdict")


def without_personal(
    comparisons: Mapping[str, Compared], environment: Environment, group: ProjectionGroup
) -> dict[str, Compared]:
    """Return comparisons of views with the personal columns of their differing rows masked, whether they differ or not.

    Terminals and logs are no place for the values.
    """
    personal = on_demand.personal_columns(environment.spark, group)
    return {name: _masked(one, personal.get(name, ())) for name, one in comparisons.items()}


def _masked(comparison: Compared, personal: Collection[str]) -> Compared:
    return dataclasses.replace(comparison, differing=tuple(_masked_row(row, personal) for row in comparison.differing))


def _masked_row(row: DifferingRow, personal: Collection[str]) -> DifferingRow:
    one, other = row.one or {}, row.other or {}
    hidden = {*personal} - {*row.key}
    shown = {name: MASK if one.get(name) == other.get(name) else f"{MASK} (differs)" for name in hidden}
    sides = [
        values and {name: shown.get(name, value) for name, value in values.items()} for values in (row.one, row.other)
    ]
    return dataclasses.replace(row, one=sides[0], other=sides[1])


def as_plain(comparisons: Mapping[str, ViewComparison]) -> dict[str, Any]:
    """A comparison as JSON has it."""
    return {name: dataclasses.asdict(one) | {"equal": one.equal} for name, one in comparisons.items()}


def print_comparison(comparisons: Mapping[str, ViewComparison]) -> None:
    """Print a comparison, with the key and both rows of what differs."""
    for name, one in comparisons.items():
        outcome = "equal" if one.equal else "DIFFERS"
        echo(f"{name}: {one.serving_rows:,} rows serving, {one.new_rows:,} new: {outcome}")
        for row in one.differing:
            print_row(row, "serving", "new")


def print_row(row: DifferingRow, one: str, other: str) -> None:
    """Print the key and both rows."""
    echo(f"  at {_pairs(row.key)}")
    for name, values in ((one, row.one), (other, row.other)):
        echo(f"    {name}: {'no row' if values is None else _pairs(values)}")


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
