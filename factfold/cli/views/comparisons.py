"""How comparisons of views look in a terminal and in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from eventstore.delivery.masking import MASK
from factfold import on_demand

if TYPE_CHECKING:
    from projections import Environment, ProjectionGroup, ViewVerdict
    from projections.lifecycle.cutover import ViewComparison
    from projections.stores.roles import DifferingRow

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


def as_plain(comparisons: Mapping[str, Compared]) -> dict[str, Any]:
    """Comparisons or verdicts as JSON has them, with the times of rows as topics of views have them."""
    return {name: _with_times(dataclasses.asdict(one)) | {"equal": one.equal} for name, one in comparisons.items()}


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_times(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_times(inner) for inner in value]
    return str(value) if isinstance(value, datetime) else value


def comparison_lines(comparisons: Mapping[str, ViewComparison]) -> Iterator[str]:
    """Yield a comparison in lines, with the key and both rows of what differs."""
    for name, one in comparisons.items():
        outcome = "equal" if one.equal else "DIFFERS"
        yield f"{name}: {one.serving_rows:,} rows serving, {one.new_rows:,} new: {outcome}"
        for row in one.differing:
            yield from row_lines(row, "serving", "new")


def row_lines(row: DifferingRow, one: str, other: str) -> Iterator[str]:
    """Yield the key and both rows."""
    yield f"  at {_pairs(row.key)}"
    for name, values in ((one, row.one), (other, row.other)):
        yield f"    {name}: {'no row' if values is None else _pairs(values)}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
