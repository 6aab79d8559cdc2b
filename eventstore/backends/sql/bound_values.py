"""Values cut into parts that one statement can bind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")


# Below SQLite's limit of bound values in every version (999 before 3.32).
_MOST_BOUND: Final = 500


def bindable(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut values into parts that any database takes in one statement."""
    for start in range(0, len(values), _MOST_BOUND):
        yield values[start : start + _MOST_BOUND]
