"""The two sides of a join by time: checked, and the right's columns under names that the left does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.declaring.views import as_columns
from projections.errors import InvalidDefinition
from projections.planning.plans import LOOKS
from projections.spark.timing.row_columns import require_columns, require_time

Columns = str | Sequence[str]
Taken = Mapping[str, str] | Columns

LEFT: Final = "the rows of the left"
RIGHT: Final = "the rows of the right"


@dataclass(frozen=True)
class Sides:
    """Rows to be joined: ``taken`` says which columns of the right the result has, by their names there."""

    left: DataFrame
    right: DataFrame
    on: tuple[str, ...]
    times: tuple[str, str]
    taken: Mapping[str, str]

    @property
    def prefix(self) -> str:
        """The prefix that distinguishes the right's columns from the left's."""
        return "_" * (self._longest + 1)

    @property
    def _longest(self) -> int:
        return max(len(c) - len(c.lstrip("_")) for c in (*self.left.columns, *self.right.columns))

    def own(self, name: str) -> str:
        """The name of a column that neither side has, under its own names or others."""
        return f"{'_' * (2 * self._longest + 2)}{name}"

    def theirs(self, column: str) -> Column:
        """A column of the right, in rows of both sides."""
        return F.col(f"{self.prefix}{column}")

    def renamed(self) -> DataFrame:
        """The right side under names of its own."""
        return self.right.select(*(F.col(c).alias(f"{self.prefix}{c}") for c in self.right.columns))

    def equal(self) -> Column:
        """Whether rows of both sides have one value in each of the columns of ``on``."""
        return all_of(F.col(c) == self.theirs(c) for c in self.on)

    def apart(self) -> Column:
        """By how many microseconds the right's row is later than the left's."""
        return F.unix_micros(self.theirs(self.times[1])) - F.unix_micros(F.col(self.times[0]))


def sides_of(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Columns,
    times: tuple[str, str],
    take: Taken | None,
) -> Sides:
    """Both sides, checked: the columns are there, the times are timestamps; InvalidDefinition."""
    shared = as_columns(on)
    if not shared:
        raise InvalidDefinition("a join by time on no columns", remedy="name in on the columns of by that both have")
    for frame, side in ((left, LEFT), (right, RIGHT)):
        require_columns(frame, shared, what=side)
    _require_times(left, right, times)
    taken = _named(take, right, shared)
    _require_taken(taken, left, right)
    return Sides(left, right, shared, times, taken)


def all_of(conditions: Iterable[Column]) -> Column:
    """Whether all of some conditions hold."""
    return reduce(lambda one, other: one & other, conditions)


def _require_times(left: DataFrame, right: DataFrame, times: tuple[str, str]) -> None:
    if isinstance(times, str) or len(times) != 2:
        raise InvalidDefinition(
            f"a join by time was given the times {times!r}", remedy="name two: that of the left, and that of the right"
        )
    for frame, side, time in ((left, LEFT, times[0]), (right, RIGHT, times[1])):
        require_time(frame, time, what=side)


def _named(take: Taken | None, right: DataFrame, on: Sequence[str]) -> dict[str, str]:
    """Column of the result → column of the right."""
    if take is None:
        return {c: c for c in right.columns if c not in on}
    return dict(take) if isinstance(take, Mapping) else {c: c for c in as_columns(take)}


def _require_taken(taken: Mapping[str, str], left: DataFrame, right: DataFrame) -> None:
    require_columns(right, taken.values(), what=RIGHT)
    for name, source in taken.items():
        if name in left.columns:
            raise InvalidDefinition(
                f"a join by time would give two columns {name!r}: each side has one",
                remedy=f"name the right's otherwise, take={{'right_{name}': '{source}', …}}, or leave it out",
            )


@dataclass(frozen=True)
class Pairs:
    """Rows of two sides whose times are apart by ``first`` to ``last`` microseconds, of the right under its names.

    Nothing compares all rows with all others. Time is cut into stretches as long as the bounds are apart. A row of one
    side is in the stretch of its time. What matches it on the other side is in at most two stretches, and has a copy in
    each. The join compares rows of one stretch. Each pair meets once, in the stretch of the row without copies.
    """

    sides: Sides
    first: int
    last: int

    def preserving_left(self, right: DataFrame, how: str) -> DataFrame:
        """Pairs of a join that may preserve the left's rows: an inner, left, semi or anti join."""
        theirs = self._theirs()
        ours, others = self._one(self.sides.left, self._ours()), self._several(right, theirs, -self.last, -self.first)
        return ours.join(others, self._meet(), how).drop(self.sides.own("one"), self.sides.own("several"))

    def preserving_right(self, right: DataFrame, how: str) -> DataFrame:
        """Pairs of a join that preserves the right's rows: ``right``, or ``left_anti`` for its rows without a match."""
        ours = self._several(self.sides.left, self._ours(), self.first, self.last)
        others, meet = self._one(right, self._theirs()), self._meet()
        joined = ours.join(others, meet, how) if how == "right" else others.join(ours, meet, how)
        return joined.drop(self.sides.own("one"), self.sides.own("several"))

    def _ours(self) -> Column:
        return F.unix_micros(self.sides.times[0])

    def _theirs(self) -> Column:
        return F.unix_micros(self.sides.theirs(self.sides.times[1]))

    def _meet(self) -> Column:
        one_stretch = F.col(self.sides.own("one")) == F.col(self.sides.own("several"))
        return all_of([self.sides.equal(), one_stretch, self.sides.apart().between(self.first, self.last)])

    def _one(self, rows: DataFrame, at: Column) -> DataFrame:
        looks = {LOOKS: max(abs(self.first), abs(self.last))}
        return rows.select("*", self._stretch(at).alias(self.sides.own("one"), metadata=looks))

    def _several(self, rows: DataFrame, at: Column, first: int, last: int) -> DataFrame:
        step = F.lit(self._width).cast("bigint")
        stretches = F.sequence(self._stretch(at + first), self._stretch(at + last), step)
        return rows.withColumn(self.sides.own("several"), F.explode(stretches))

    @property
    def _width(self) -> int:
        return max(self.last - self.first, 1)

    def _stretch(self, at: Column) -> Column:
        """Where the stretch of a time begins."""
        return at - F.pmod(at, F.lit(self._width).cast("bigint"))
