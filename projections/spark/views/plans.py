"""What an analysed plan does, asked of Spark itself: its operators, and values that are others at another time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from projections.spark.scala import items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHOOSING: Final = ("first", "first_value", "last", "last_value", "any_value")
_COLLECTING: Final = ("collect_list", "collect_set", "array_agg")
_SORTING: Final = ("sort_array", "array_sort")
# Floating-point numbers added up in another order come to other last digits; those of regr_count are not added up.
_ADDING: Final = (
    "sum", "try_sum", "avg", "mean", "try_avg", "std", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp",
    "var_pop", "skewness", "kurtosis", "corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_intercept",
    "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
)  # fmt: skip
_ROUNDING: Final = ("round", "bround")
_FLOATS: Final = ("double", "float")


def analysed_plan(frame: DataFrame) -> Any:
    """The logical plan after analysis, in the JVM."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the plan has no Python face


def operators(plan: Any) -> Iterator[str]:
    """The names of the plan's operators, those of its subqueries included."""
    return (node.nodeName() for node in _nodes(plan))


def is_attribute(expression: Any) -> bool:
    """Whether an expression is a column of what is below it."""
    return kind(expression) == "AttributeReference"


def kind(expression: Any) -> str:
    """The name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def nondeterministic(plan: Any) -> str | None:
    """The name of an expression that may give another value each time it is computed, such as ``rand``."""
    return _first(plan, lambda expression: not expression.deterministic())


def unordered(plan: Any) -> str | None:
    """The name of an aggregate whose value follows the order in which its rows happen to come; sorted, it does not."""
    kept = (n for n in _nodes(plan) if n.nodeName() == "Deduplicate" and n.keys().size() < n.output().size())
    return _first(plan, _follows_order) or next(("dropDuplicates by some of the columns" for _ in kept), None)


def _follows_order(expression: Any) -> bool:
    name, children = str(expression.prettyName()), items(expression.children())
    if name in _SORTING and any(str(child.prettyName()) in _COLLECTING for child in map(_aggregated, children)):
        return False
    return name in (*_COLLECTING, *_CHOOSING) or any(map(_follows_order, children))


def _aggregated(expression: Any) -> Any:
    """The function of an aggregate expression, or the expression itself."""
    return expression.aggregateFunction() if kind(expression) == "AggregateExpression" else expression


def inexact(plan: Any) -> str | None:
    """The name of an aggregate of floating-point numbers: its last digits follow the order of its rows."""
    return _first(plan, _adds_floats)


def _adds_floats(expression: Any) -> bool:
    name, children = str(expression.prettyName()), items(expression.children())
    if name in _ROUNDING:
        return False
    adds = name in _ADDING and kind(expression) != "AggregateExpression"  # which is named as the function in it
    return (adds and any(map(_is_float, children))) or any(map(_adds_floats, children))


def _is_float(expression: Any) -> bool:
    return expression.dataType().simpleString() in _FLOATS


def environmental(frame: DataFrame, plan: Any) -> str | None:
    """The name of an expression whose value Spark takes from its surroundings: the time, the user, the database."""
    catalyst = java(frame.sparkSession).org.apache.spark.sql.catalyst
    current = catalyst.trees.TreePattern.CURRENT_LIKE()
    if found := _first(plan, lambda expression: expression.containsPattern(current)):
        return found
    # Texts such as 'now' and 'today' cast to a time are no function of their own.
    return None if catalyst.optimizer.SpecialDatetimeValues.apply(plan).fastEquals(plan) else "cast('now')"


def java(spark: SparkSession) -> Any:
    """Spark's own classes."""
    return spark._jvm  # noqa: SLF001 - nor have they


def _nodes(plan: Any) -> Iterator[Any]:
    """Subqueries before what contains them."""
    for inner in (*items(plan.children()), *items(plan.subqueries())):
        yield from _nodes(inner)
    yield plan


def _first(plan: Any, holds: Callable[[Any], bool]) -> str | None:
    expressions = (expression for node in _nodes(plan) for expression in items(node.expressions()))
    return next((_origin(expression, holds) for expression in expressions if holds(expression)), None)


def _origin(expression: Any, holds: Callable[[Any], bool]) -> str:
    """The innermost expression for which it holds."""
    inner = next((child for child in items(expression.children()) if holds(child)), None)
    return str(expression.prettyName()) if inner is None else _origin(inner, holds)
