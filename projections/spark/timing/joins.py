"""Joins by time, inside the function of a view over partitions: within bounds, and as of a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.declaring.timing import promises
from projections.declaring.timing.promises import Lasting
from projections.declaring.views import as_columns
from projections.errors import InvalidDefinition
from projections.planning.nearness import BOUNDS, MICROS, WAYS
from projections.spark.timing.row_columns import in_order, key_of, require_columns, saying
from projections.spark.timing.sides import DIRECTIONS, RIGHT, Columns, Direction, Pairs, Search, Sides, Taken, sides_of

How = Literal["inner", "left", "right", "full", "semi", "anti"]

_JOINS: Final = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "left_semi",
                 "anti": "left_anti"}  # fmt: skip


def join_within(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Columns,
    times: tuple[str, str],
    upper: Lasting,
    lower: Lasting = "0 seconds",
    how: How = "left",
    take: Taken | None = None,
) -> DataFrame:
    """Join rows whose times are ``lower`` to ``upper`` apart, both included, to the microsecond.

    For the function of a view over partitions. A row without a time, or without a value in ``on``, matches nothing.

    Args:
        left: The rows to join.
        right: The rows to find.
        on: The columns that must be equal.
        times: The column of the left's time, and that of the right's.
        upper: The longest time from the left row to the right one.
        lower: The shortest, which may be negative.
        how: The kind of join.
        take: Columns of the right for the result (``["page"]``), or new names (``{"next_id": "search_id"}``). By
            default all but ``on``.

    Raises:
        InvalidDefinition: The join cannot work, or a column is missing. Raised when the view is planned.

    Examples:
        >>> join_within(views, orders, on="customer_id", times=("seen_at", "placed_at"), upper="1 hour")
    """
    first, last = _bounds(lower, upper)
    _require_how(how, _JOINS, "join_within")
    only_left = how in ("semi", "anti")
    if only_left and take is not None:
        raise InvalidDefinition(
            f"join_within takes columns of the right, and a {how} join has none", remedy="leave out take"
        )
    sides = sides_of(left, right, on=on, times=times, take=() if only_left else take)
    return saying(_within(Pairs(sides, first, last), how), **{MICROS: max(last, 0) - min(first, 0)})


def _within(pairs: Pairs, how: How) -> DataFrame:
    sides, right = pairs.sides, pairs.sides.renamed()
    if how in ("semi", "anti"):
        return pairs.preserving_left(right, _JOINS[how])
    if how == "right":
        return _of_both(pairs.preserving_right(right, "right"), sides, how)
    joined = _of_both(pairs.preserving_left(right, _JOINS["left" if how == "full" else how]), sides, "left")
    return joined if how != "full" else joined.union(_alone(pairs.preserving_right(right, "left_anti"), sides))


def join_as_of(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Columns,
    times: tuple[str, str],
    direction: Direction = "backward",
    tolerance: Lasting | None = None,
    ties: Columns = (),
    condition: str | Column | None = None,
    exact: bool = True,
    how: Literal["inner", "left"] = "left",
    take: Taken | None = None,
) -> DataFrame:
    """Join each row of ``left`` with the one row of ``right`` whose time is closest to its own.

    For the function of a view over partitions.

    Args:
        left: The rows to join.
        right: The rows to find.
        on: The columns that must be equal.
        times: The column of the left's time, and that of the right's.
        direction: ``backward`` finds earlier rows, ``forward`` later ones, ``nearest`` both, and the earlier one at
            equal distance.
        tolerance: The greatest distance, included.
        ties: Of rows of one time, the greatest in these columns is taken, then the greatest key. Of one aggregate's
            events the later one.
        condition: SQL or a column, by the names of the result. All right rows within ``tolerance`` are then compared.
            Without it, both sides are sorted once.
        exact: Allow equal times.
        how: The kind of join.
        take: Columns of the right for the result, as in `join_within`.

    Raises:
        InvalidDefinition: The join cannot work, or a column is missing. Raised when the view is planned.

    Examples:
        >>> times = ("traded_at", "quoted_at")
        >>> join_as_of(trades, quotes, on="symbol", times=times, tolerance="1 hour", take=["price"])
    """
    _require_how(how, ("inner", "left"), "join_as_of")
    if direction not in DIRECTIONS:
        raise InvalidDefinition(
            f"join_as_of cannot look {direction!r}", remedy=f"choose a direction: {', '.join(DIRECTIONS)}"
        )
    sides = sides_of(left, right, on=on, times=times, take=take)
    search = Search(sides, direction, _order(right, ties), exact=exact, reach=_reach(tolerance))
    rows = search.joined(condition, how)
    if condition is None:
        return saying(rows, **{BOUNDS: sides.on, WAYS: DIRECTIONS[direction]})
    return rows if search.reach is None else saying(rows, **{MICROS: len(DIRECTIONS[direction]) * search.reach})


def _bounds(lower: Lasting, upper: Lasting) -> tuple[int, int]:
    first, last = promises.exact(lower, what="lower"), promises.exact(upper, what="upper")
    if first > last:
        raise InvalidDefinition(
            f"join_within has no time between its lower bound, {lower}, and its upper one, {upper}",
            remedy="swap them. Both count from the left's time: '-10 minutes' is before it",
        )
    return first, last


def _require_how(how: str, known: Iterable[str], function: str) -> None:
    if how not in known:
        raise InvalidDefinition(f"{function} cannot join {how!r}", remedy=f"use how= one of: {', '.join(known)}")


def _of_both(joined: DataFrame, sides: Sides, how: str) -> DataFrame:
    """The left's columns, those of ``on`` from the side that the row has, and those taken of the right."""
    shared = sides.on if how == "right" else ()
    ours = [sides.theirs(c).alias(c) if c in shared else F.col(c) for c in sides.left.columns]
    return joined.select(*ours, *(sides.theirs(source).alias(name) for name, source in sides.taken.items()))


def _alone(right: DataFrame, sides: Sides) -> DataFrame:
    """Rows of the right that have no match, with nulls in the left's columns."""
    kinds = {field.name: field.dataType for field in sides.left.schema.fields}
    absent = (F.lit(None).cast(kind).alias(c) for c, kind in kinds.items() if c not in sides.on)
    return _of_both(right.select("*", *absent), sides, "right")


def _reach(tolerance: Lasting | None) -> int | None:
    if tolerance is None:
        return None
    micros = promises.exact(tolerance, what="tolerance")
    if micros < 0:
        raise InvalidDefinition(
            f"tolerance {str(tolerance)!r} is negative", remedy="give the distance: direction says on which side"
        )
    return micros


def _order(right: DataFrame, ties: Columns) -> list[Column]:
    """Which of several rows of one time is meant: the greatest in this order."""
    named = as_columns(ties)
    require_columns(right, named, what=RIGHT)
    order = [*map(F.col, named), *in_order(right, key_of(right))]
    if not order:
        raise InvalidDefinition(
            "join_as_of has a right side in which two rows may have one time, and no key to choose one",
            remedy="name in ties the columns that distinguish them, or select the columns of its table's key",
        )
    return order
