"""Window functions of a view's plan: whether the rows that they look at have one order, and what they number.

A value that depends on which of two equal rows comes first is another one in a batch than in a rebuild.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from projections.planning.aggregates import TellApart, require_right
from projections.planning.partition_rows import Ids, LocalRows, attributes
from projections.planning.plans import Node
from projections.planning.rows import Untraceable

_BY_VALUE: Final = ("Rank", "DenseRank", "PercentRank", "CumeDist")  # equal rows have one value


def require_certain(named: Node, below: LocalRows) -> Ids | None:
    """Refuse a window function whose value depends on the order of equal rows; Untraceable.

    Returns the attributes that distinguish rows if it numbers them.
    """
    window = named.bare
    function, spec = window.one("windowFunction"), window.one("windowSpec")
    orders = [order.one("child") for order in spec.all("orderSpec")]
    by = spec.all("partitionSpec")
    if not below.distinguish([*by, *orders]):
        _require_order_free(function, spec, below.within(by))
    if function.kind == "RowNumber" and all(one.is_attribute for one in by):
        return _not_by(below, by) | {named.id}
    return None


def _require_order_free(function: Node, spec: Node, distinguish: TellApart) -> None:
    if function.kind in _BY_VALUE:
        return
    if function.kind == "AggregateExpression" and _looks_by_value(spec.one("frameSpecification")):
        require_right(function, distinguish)
        return
    named = function.one("aggregateFunction") if function.kind == "AggregateExpression" else function
    raise Untraceable(
        f"{named.jvm.prettyName()} over rows of which two may be equal in the order of its window",
        "order by what is equal, and then by the key of the table: ORDER BY at, id",
    )


def _looks_by_value(frame: Node) -> bool:
    """Whether a frame has all rows that are equal in its order, or none of them."""
    if frame.kind.startswith("UnspecifiedFrame"):
        return True
    by_range = str(frame.arguments["frameType"]["object"]).endswith("RangeFrame$")
    whole = [frame.one("lower").kind, frame.one("upper").kind]
    return by_range or whole == ["UnboundedPreceding$", "UnboundedFollowing$"]


def _not_by(below: LocalRows, by: Sequence[Node]) -> Ids:
    places = range(len(below.by))
    return attributes(one for one in by if not any(below.holds(place, one) for place in places))
