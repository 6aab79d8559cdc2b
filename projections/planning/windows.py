"""Window functions of a view's plan: whether the rows that they look at have one order, and what they number.

A value that depends on which of two equal rows comes first is another one in a batch than in a rebuild.
"""

from __future__ import annotations

from typing import Any, Final

from projections.planning.aggregates import TellApart, require_right
from projections.planning.partition_rows import Ids, LocalRows, attributes, bare
from projections.planning.plans import is_attribute, kind
from projections.planning.rows import Untraceable
from projections.planning.scala import items

_BY_VALUE: Final = ("Rank", "DenseRank", "PercentRank", "CumeDist")  # equal rows have one value


def require_certain(named: Any, below: LocalRows) -> Ids | None:
    """Refuse a window function whose value depends on the order of equal rows; Untraceable.

    Returns the attributes that distinguish rows if it numbers them.
    """
    window = bare(named)
    function, spec = window.windowFunction(), window.windowSpec()
    orders = [order.child() for order in items(spec.orderSpec())]
    by = items(spec.partitionSpec())
    if not below.distinguish([*by, *orders]):
        _require_order_free(function, spec, below.within(by))
    if kind(function) == "RowNumber" and all(map(is_attribute, by)):
        return _not_by(below, by) | {named.exprId().id()}
    return None


def _require_order_free(function: Any, spec: Any, distinguish: TellApart) -> None:
    if kind(function) in _BY_VALUE:
        return
    if kind(function) == "AggregateExpression" and _looks_by_value(spec.frameSpecification()):
        require_right(function, distinguish)
        return
    named = function.aggregateFunction() if kind(function) == "AggregateExpression" else function
    raise Untraceable(
        f"{named.prettyName()} over rows of which two may be equal in the order of its window",
        "order by what is equal, and then by the key of the table: ORDER BY at, id",
    )


def _looks_by_value(frame: Any) -> bool:
    """Whether a frame has all rows that are equal in its order, or none of them."""
    if kind(frame).startswith("UnspecifiedFrame"):
        return True
    by_range = kind(frame.frameType()).startswith("RangeFrame")
    whole = [kind(frame.lower()), kind(frame.upper())]
    return by_range or whole == ["UnboundedPreceding$", "UnboundedFollowing$"]


def _not_by(below: LocalRows, by: list[Any]) -> Ids:
    places = range(len(below.by))
    return attributes(one for one in by if not any(below.holds(place, one) for place in places))
