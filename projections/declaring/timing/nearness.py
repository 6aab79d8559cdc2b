"""Which rows of a partition a row of a view may follow from: those near in time, and not the whole partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Nearness:
    """How far a changed row reaches in its partition, by the time of each table's rows in ``times``.

    It reaches the rows that are at most ``micros`` away. If ``chained``, it reaches on from each of these, as sessions
    do. With ``bounds``, rows of the other table look at the next rows of this one: ``before`` them, ``after`` them, or
    both.
    """

    times: Mapping[str, str]
    micros: int = 0
    chained: bool = False
    bounds: str | None = None
    before: bool = True
    after: bool = True


class Near:
    """The nearness of a view, set once Spark has planned it, in every copy of the view; None for whole partitions."""

    known: Nearness | None = None
