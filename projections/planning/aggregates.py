"""Every aggregate function of Spark, and whether its value is the same in whatever order its rows come.

Rows of a group come in another order in a batch than in a rebuild. An aggregate is therefore right, or right for
numbers that are added exactly, or right with a total order, or it is refused. An aggregate that is not here is refused.
Names are those of Catalyst's classes: several functions of SQL are one class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from projections.planning.expressions import differs_from_equal_ones, require_one_of_equal_ones
from projections.planning.plans import Node
from projections.planning.refusals import Untraceable


class TellApart(Protocol):
    """What knows the rows of an operator."""

    def __call__(self, expressions: Sequence[Node], /, *, present: bool = False) -> bool:
        """Whether rows that are equal in some expressions are one row; or those of them where all are ``present``."""


RIGHT: Final = frozenset(
    {
        "BitAndAgg", "BitOrAgg", "BitXorAgg", "BitmapAndAgg", "BitmapConstructAgg", "BitmapOrAgg", "BoolAnd", "BoolOr",
        "Count", "CountIf", "CountMinSketchAgg", "HyperLogLogPlusPlus", "Median", "Percentile", "PercentileCont",
        "PercentileDisc", "RegrCount",
    }
)  # fmt: skip
EXACT: Final[Mapping[str, str]] = {
    "Sum": "add up decimals, sum(cast(x AS decimal(18, 2)))",
    "Average": "take the mean of decimals, avg(cast(x AS decimal(18, 2)))",
    "RegrAvgX": "take the mean of decimals, avg(cast(x AS decimal(18, 2)))",
    "RegrAvgY": "take the mean of decimals, avg(cast(y AS decimal(18, 2)))",
}
"""Right of integers and decimals; and what to write of floating-point numbers."""
EXTREMES: Final = frozenset({"Max", "Min"})
"""Right of values that equal no other one."""

_DISTINCT: Final = "count exactly, count(DISTINCT x), or by hash, approx_count_distinct(x)"
_PERCENTILE: Final = "take it exactly, percentile(x, 0.5)"
_MOST: Final = "group by the value in a view of its own, and count"
_SUMS: Final = "compute it from sums of decimals: count(x), sum(x), sum(x * x), sum(x * y)"
REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("First", "Last", "AnyValue"), "say the order, min_by(x, struct(at, id)) or max_by(…)"),
    **dict.fromkeys(
        ("StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "Skewness", "Kurtosis", "Corr", "CovPopulation",
         "CovSample", "RegrIntercept", "RegrR2", "RegrReplacement", "RegrSlope", "RegrSXX", "RegrSXY", "RegrSYY"),
        _SUMS,
    ),
    "Product": "multiply in an order, aggregate(sort_array(collect_list(x + 0D)), 1D, (product, x) -> product * x)",
    "HistogramNumeric": "count by bucket, count_if(x < 10), or group by width_bucket(x, 0, 100, 10)",
    "ApproximatePercentile": _PERCENTILE,
    **dict.fromkeys(("ApproxTopK", "ApproxTopKAccumulate", "ApproxTopKCombine"), _MOST),
    **dict.fromkeys(
        (f"Kll{what}Agg{of}" for what in ("Sketch", "Merge") for of in ("Bigint", "Double", "Float")), _PERCENTILE
    ),
    **dict.fromkeys(
        ("HllSketchAgg", "HllUnionAgg", "ThetaSketchAgg", "ThetaUnionAgg", "ThetaIntersectionAgg",
         *(f"Tuple{what}Agg{of}" for what in ("Sketch", "Union", "Intersection") for of in ("Double", "Integer"))),
        _DISTINCT,
    ),
    **dict.fromkeys(("Grouping", "GroupingID"), "group by the columns of the view alone, in a view each"),
    "Measure": "write the aggregate itself",
}  # fmt: skip
"""Never right, and what to write instead."""

_BY_ORDER: Final = "put the value or the whole key of the table into the order, {name}(x, struct(at, x))"
ORDERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("MaxBy", "MinBy", "MaxMinByK"), _BY_ORDER),
    **dict.fromkeys(("CollectList", "CollectSet"), "sort what is collected, sort_array({name}(x))"),
    "ListAgg": "say the order, {name}(x, ',') WITHIN GROUP (ORDER BY x)",
    "Mode": "say the order, mode() WITHIN GROUP (ORDER BY x)",
    "PivotFirst": "aggregate for each value, sum(x) FILTER (WHERE kind = 'a') AS a",
}
"""Right by an order that says all; and how it is said."""

_FLOATS: Final = ("double", "float")
_SORTING: Final = ("SortArray", "ArraySort")
_VARIABLE: Final = "namedlambdavariable()"
_BY_VALUE: Final = (
    f"lambdafunction((IF((({_VARIABLE} IS NULL) AND ({_VARIABLE} IS NULL)), 0, (IF(({_VARIABLE} IS NULL), 1,"
    f" (IF(({_VARIABLE} IS NULL), -1, (IF(({_VARIABLE} < {_VARIABLE}), -1, (IF(({_VARIABLE} > {_VARIABLE}), 1,"
    f" 0)))))))))), {_VARIABLE}, {_VARIABLE})"
)
_MOST_DIGITS: Final = 28  # ten more are Spark's sum's: no group has as many rows as would overflow it
_FOLDS: Final = frozenset(name for name, remedy in REFUSED.items() if remedy == _SUMS or name == "Product")
_OF_FLOATS: Final = "of floating-point numbers, whose last digits depend on their order"
_BY_CHANCE: Final = "which depends on the order its rows come in"
_UNKNOWN: Final = "use an aggregate of SQL, or a function of sort_array(collect_list(x))"
_SMALL: Final = ("tinyint", "smallint", "int")


def require_right(expression: Node, distinguish: TellApart) -> None:
    """Refuse an aggregate whose value follows the order of its rows, which ``distinguish`` knows; Untraceable."""
    for aggregate, is_sorted in _aggregates(expression):
        function = aggregate.one("aggregateFunction")
        if (name := function.kind) in RIGHT:
            continue
        sql_name = str(function.jvm.prettyName())
        if name in EXACT:
            _require_exact(function, name, sql_name)
        elif name in EXTREMES or (name in ORDERED and is_sorted):
            require_one_of_equal_ones(function.children[0], sql_name)
        elif name in ORDERED and not _ORDERS.get(name, _is_never)(function, distinguish):
            raise Untraceable(f"{sql_name}, {_BY_CHANCE}", ORDERED[name].format(name=sql_name))
        elif name not in ORDERED:
            remedy = REFUSED.get(name, _UNKNOWN)
            raise Untraceable(f"{sql_name} {_OF_FLOATS}" if name in _FOLDS else f"{sql_name}, {_BY_CHANCE}", remedy)


def _aggregates(expression: Node, *, is_sorted: bool = False) -> Iterator[tuple[Node, bool]]:
    """The aggregates of an expression, and whether all that they collect is put into one order at once."""
    if expression.kind == "AggregateExpression":
        yield expression, is_sorted
        return
    sorts = expression.kind == "SortArray" or (expression.kind == "ArraySort" and _is_whole_order(expression))
    for child in expression.children:
        yield from _aggregates(child, is_sorted=sorts and child.kind == "AggregateExpression")


def _is_whole_order(array_sort: Node) -> bool:
    """Whether it compares by the values themselves, as it does without a function of the user's."""
    return array_sort.one("function").sql == _BY_VALUE


def _require_exact(function: Node, name: str, sql_name: str) -> None:
    given = [child.type for child in function.children]
    if any(kind in _FLOATS for kind in given):
        raise Untraceable(f"{sql_name} {_OF_FLOATS}", EXACT[name])
    if sql_name.startswith("try_") and not all(kind in _SMALL or _digits(kind) <= _MOST_DIGITS for kind in given):
        raise Untraceable(
            f"{sql_name} of {', '.join(given)}, whose overflow depends on the order its rows come in",
            f"take {_MOST_DIGITS} digits at most, {sql_name}(cast(x AS decimal({_MOST_DIGITS}, 0))), or {sql_name[4:]}",
        )


def _digits(given: str) -> int:
    return int(given[8:].partition(",")[0]) if given.startswith("decimal(") else _MOST_DIGITS + 1


# ---- orders


def _is_by_order(function: Node, distinguish: TellApart) -> bool:
    value, order = function.children[:2]
    # Rows whose order is null are passed over.
    passed = order.is_attribute and function.kind != "MaxMinByK" and distinguish([order], present=True)
    return passed or _decides(list(_parts(order)), value, distinguish)


def _is_listed_in_order(function: Node, distinguish: TellApart) -> bool:
    orders = [order.one("child") for order in function.all("orderExpressions")]
    return _decides([part for order in orders for part in _parts(order)], function.one("child"), distinguish)


def _has_an_order(function: Node, distinguish: TellApart) -> bool:
    return function.arguments.get("reverseOpt") is not None


def _is_of_one_row(function: Node, distinguish: TellApart) -> bool:
    """Whether there is one row for each value of a PIVOT, as Spark has grouped them below."""
    return distinguish([function.one("pivotColumn")])


def _is_never(function: Node, distinguish: TellApart) -> bool:
    return False


_ORDERS: Final[Mapping[str, Callable[[Node, TellApart], bool]]] = {
    **dict.fromkeys(("MaxBy", "MinBy", "MaxMinByK"), _is_by_order),
    "ListAgg": _is_listed_in_order,
    "Mode": _has_an_order,
    "PivotFirst": _is_of_one_row,
}


def _parts(order: Node) -> Iterator[Node]:
    """What an order compares, one after the other."""
    if order.kind != "CreateNamedStruct":
        yield order
        return
    for value in order.children[1::2]:
        yield from _parts(value)


def _decides(parts: list[Node], value: Node, distinguish: TellApart) -> bool:
    """Whether rows that are equal in an order have the same value: it is in the order, or the key of the rows is."""
    ordered = {part.jvm.canonicalized() for part in parts}
    return _consists_of(value, ordered) or distinguish(parts)


def _consists_of(value: Node, ordered: set[Any]) -> bool:
    if value.jvm.canonicalized() in ordered:
        return not differs_from_equal_ones(value)
    return not value.is_attribute and all(_consists_of(child, ordered) for child in value.children)
