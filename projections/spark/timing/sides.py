"""The two sides of a join by time: checked, and the right's columns under names that the left does not have.

As of a time, the row of the right is the one whose time is the closest to that of the row of the left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from projections.declaring.views import as_columns
from projections.errors import InvalidDefinition
from projections.planning.nearness import AFTER, BEFORE, BOUNDS, TIME
from projections.planning.plans import ANY_TIME, LOOKS
from projections.spark.timing.row_columns import require_columns, require_time, saying

Columns = str | Sequence[str]
Taken = Mapping[str, str] | Columns
LEFT: Final = "the rows of the left"
RIGHT: Final = "the rows of the right"
Direction = Literal["backward", "forward", "nearest"]
DIRECTIONS: Final = {"backward": (BEFORE,), "forward": (AFTER,), "nearest": (BEFORE, AFTER)}
_AT, _ORDER, _TAKEN, _MATCH = "at", "order", "taken", "match"


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
    ours = saying(left, **{TIME: times[0], BOUNDS: False})
    theirs = saying(right, **{TIME: times[1], BOUNDS: True})
    return Sides(ours, theirs, shared, times, taken)


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


@dataclass(frozen=True)
class Search:
    """What is looked for: of rows of one time the greatest by ``order``, at most ``reach`` microseconds away."""

    sides: Sides
    direction: Direction
    order: Sequence[Column]
    exact: bool
    reach: int | None

    def joined(self, condition: str | Column | None, how: Literal["inner", "left"]) -> DataFrame:
        """The left's rows with the columns of the matching row of the right."""
        matched = self._in_order() if condition is None else self._among_all(condition)
        match = self._own(_MATCH)
        rows = matched if how == "left" else matched.where(match.isNotNull())
        return rows.select(*self.sides.left.columns, *(match[name].alias(name) for name in self.sides.taken))

    def _own(self, name: str) -> Column:
        return F.col(self.sides.own(name))

    def _timed(self) -> DataFrame:
        """The right's rows that may match, with their time and what the result takes of them."""
        sides, at = self.sides, F.unix_micros(self.sides.times[1])
        taken = (F.col(source).alias(name) for name, source in sides.taken.items())
        rows = sides.right.where(F.col(sides.times[1]).isNotNull())
        for column in sides.on:
            rows = rows.where(F.col(column).isNotNull())
        return rows.withColumns(
            {sides.own(_AT): at, sides.own(_TAKEN): F.struct(at.alias(sides.own(_AT)), *taken)},
        )

    # ---- sorted once

    def _in_order(self) -> DataFrame:
        """Both sides follow each other in time: what is the greatest so far is the closest one before."""
        rows = self._both()
        for way in DIRECTIONS[self.direction]:
            closest = F.max_by(self._own(_TAKEN), self._own(way)).over(self._window(way))
            rows = rows.withColumn(self.sides.own(f"{_MATCH}_{way}"), closest)
        ours = rows.where(self._own(_TAKEN).isNull())
        return ours.select("*", self._closest().alias(self.sides.own(_MATCH), metadata=self._looks()))

    def _looks(self) -> dict[str, int]:
        """How far from its own time a row of the left looks."""
        return {LOOKS: ANY_TIME if self.reach is None else self.reach}

    def _both(self) -> DataFrame:
        """One side under the other, nulls in the columns that are the other's."""
        sides = self.sides
        right, left = self._ordered(), sides.left.withColumn(sides.own(_AT), F.unix_micros(sides.times[0]))
        columns = [*left.columns, *(c for c in right.columns if c not in left.columns)]

        def filled(rows: DataFrame, other: DataFrame) -> DataFrame:
            absent = {c: F.lit(None).cast(other.schema[c].dataType) for c in columns if c not in rows.columns}
            return rows.select(*(absent[c].alias(c) if c in absent else F.col(c) for c in columns))

        return filled(left, right).union(filled(right, left))

    def _ordered(self) -> DataFrame:
        """The right's rows by what is compared of them, in each direction."""
        rows, at = self._timed(), self._own(_AT)
        times = {BEFORE: at, AFTER: -at}
        orders = {way: F.struct(times[way], *self.order) for way in DIRECTIONS[self.direction]}
        ordered = (order.alias(self.sides.own(way)) for way, order in orders.items())
        return rows.select(*self.sides.on, self._own(_AT), self._own(_TAKEN), *ordered)

    def _window(self, way: str) -> WindowSpec:
        at = self._own(_AT)
        window = Window.partitionBy(*self.sides.on).orderBy(at if way == BEFORE else -at)
        return window.rangeBetween(Window.unboundedPreceding, Window.currentRow if self.exact else -1)

    def _closest(self) -> Column:
        """Of the rows found in each direction the closer one, the earlier one at equal distance, within reach."""
        at, matches = self._own(_AT), [self._own(f"{_MATCH}_{way}") for way in DIRECTIONS[self.direction]]
        before, after = matches[0], matches[-1]
        since, until = at - before[self.sides.own(_AT)], after[self.sides.own(_AT)] - at
        closest = F.when(after.isNull() | (since <= until), before).otherwise(after) if len(matches) > 1 else before
        if self.reach is None:
            return closest
        return F.when(F.abs(closest[self.sides.own(_AT)] - at) <= self.reach, closest)

    # ---- all compared

    def _among_all(self, condition: str | Column) -> DataFrame:
        """The closest of the rows for which a condition holds, by what the rows of the left differ in."""
        own, texts = self.sides.own, _texts(self.sides)
        alike = [texts.get(c, c) for c in self.sides.left.columns]
        as_texts = [F.col(c).cast("string").alias(text) for c, text in texts.items()]
        pairs = self._pairs().where(F.expr(condition) if isinstance(condition, str) else condition)
        closest = F.max_by(self._own(_TAKEN), self._closeness()).alias(own(_MATCH), metadata=self._looks())
        best = pairs.select("*", *as_texts).groupBy(*alike).agg(closest)
        renamed = best.select(*(F.col(c).alias(own(f"of_{c}")) for c in alike), own(_MATCH))
        left = self.sides.left.select("*", *as_texts)
        return left.join(renamed, all_of(F.col(c).eqNullSafe(self._own(f"of_{c}")) for c in alike), "left")

    def _pairs(self) -> DataFrame:
        """All rows of both sides that may match."""
        sides, own = self.sides, self.sides.own
        rows = self._timed().withColumn(own(_ORDER), F.struct(*self.order))
        prefixed = [F.col(c).alias(f"{sides.prefix}{c}") for c in dict.fromkeys([*sides.on, sides.times[1]])]
        taken = [self._own(_TAKEN)[name].alias(name) for name in sides.taken]
        right = rows.select(*prefixed, *taken, self._own(_TAKEN), self._own(_ORDER))
        first, last = self._bounds()
        if first is None or last is None:
            near = [
                *([] if first is None else [sides.apart() >= first]),
                *([] if last is None else [sides.apart() <= last]),
            ]
            pairs = sides.left.join(right, all_of([sides.equal(), sides.apart().isNotNull(), *near]))
        else:
            pairs = Pairs(sides, first, last).preserving_left(right, "inner")
        return pairs if self.exact else pairs.where(sides.apart() != 0)

    def _bounds(self) -> tuple[int | None, int | None]:
        """By how much the time of a match may be later than the left's, at least and at most."""
        behind = None if self.reach is None else -self.reach
        return {"backward": (behind, 0), "forward": (0, self.reach), "nearest": (behind, self.reach)}[self.direction]

    def _closeness(self) -> Column:
        apart = self.sides.apart()
        return F.struct(-F.abs(apart), apart <= 0, self._own(_ORDER))


def _texts(sides: Sides) -> dict[str, str]:
    """Names for the texts of the left's floating-point columns, by which 0.0 and -0.0 differ as no group has them."""
    texts = {}
    for field in sides.left.schema.fields:
        if isinstance(field.dataType, DoubleType | FloatType):
            texts[field.name] = sides.own(f"text_{field.name}")
        elif not _is_comparable(field.dataType):
            raise InvalidDefinition(
                f"join_as_of with a condition compares rows of the left, and {field.name!r} is"
                f" {field.dataType.simpleString()}",
                remedy="leave it out on the left, and join it afterwards by the key",
            )
    return texts


def _is_comparable(kind: DataType) -> bool:
    """Whether values that are equal are one: no map has an order, and within lists and records no zero is turned."""
    match kind:
        case ArrayType():
            return _is_comparable(kind.elementType)
        case StructType():
            return all(_is_comparable(field.dataType) for field in kind.fields)
    return not isinstance(kind, MapType | DoubleType | FloatType)
