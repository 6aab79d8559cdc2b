"""The columns that functions over time are given: that they are there, that a time is one, and the order of a key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.errors import InvalidDefinition
from projections.planning.nearness import MARK
from projections.planning.plans import ENTRY, ROW_KEY


def require_columns(rows: DataFrame, names: Iterable[str], *, what: str = "the rows", place: str | None = None) -> None:
    """Refuse a column that ``rows`` do not have; InvalidDefinition, in which ``what`` stands for them."""
    for name in names:
        if name not in rows.columns:
            raise InvalidDefinition(
                f"{what} have no column {name!r}",
                remedy=f"name one of: {', '.join(rows.columns)}",
                place=place,
                code="unknown-column",
            )


def require_time(rows: DataFrame, column: str, *, what: str = "the rows") -> None:
    """Refuse a column that is no timestamp or does not exist; InvalidDefinition."""
    require_columns(rows, [column], what=what)
    kind = rows.schema[column].dataType.simpleString()
    if kind != "timestamp":
        raise InvalidDefinition(
            f"{column!r} of {what} is {kind}, and a time is a timestamp",
            remedy=f"convert it first, with timestamp_micros({column}) or cast({column} AS timestamp)",
        )


def key_of(rows: DataFrame) -> tuple[str, ...]:
    """The columns of the key that the rows have of their table; none if they lost it."""
    return tuple(field.name for field in rows.schema.fields if ROW_KEY in field.metadata)


def in_order(rows: DataFrame, key: Sequence[str]) -> list[Column]:
    """What a key is ordered by: of two events of one aggregate, the later one is the greater."""
    # As text, a@9 is greater than a@10.
    entries = [name for name in key if ENTRY in rows.schema[name].metadata]
    return [*(F.substring_index(name, "@", -1).cast("bigint") for name in entries), *map(F.col, key)]


def saying(rows: DataFrame, **said: Any) -> DataFrame:
    """The rows, marked in their plan with what `projections.planning.nearness` is to know of a function over time."""
    return rows.select("*", F.lit(json.dumps(said)).alias(MARK)).drop(MARK)
