"""Pairs of rows whose times differ by a length between two bounds, without comparing all rows.

Time is cut into stretches as long as the bounds are apart. A row of one side is in one stretch, and what may match a
row of the other side is in two at most: rows of one stretch are compared, and each pair meets in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.planning.marks import LOOKS
from projections.spark.timing.sides import Sides, all_of


@dataclass(frozen=True)
class Pairs:
    """Rows of two sides whose times are apart by ``first`` to ``last`` microseconds, of the right under its names."""

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
