"""What an analysed plan does, asked of Spark itself: its operators, and values that are others at another time.

A plan is in the JVM, and each question to it costs a round trip. A whole plan knows in one what its parts contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from projections.planning.scala import items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def analysed_plan(frame: DataFrame) -> Any:
    """The logical plan after analysis, in the JVM."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the plan has no Python face


def operators(plan: Any) -> Iterator[str]:
    """The names of the plan's operators, those of its subqueries included."""
    return (node.nodeName() for node in _nodes(plan))


def leaves(plan: Any) -> Iterator[Any]:
    """The operators that rows come from, those of its subqueries included."""
    return (node for node in _nodes(plan) if not items(node.children()))


def is_attribute(expression: Any) -> bool:
    """Whether an expression is a column of what is below it."""
    return kind(expression) == "AttributeReference"


def kind(expression: Any) -> str:
    """The name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def nondeterministic(plan: Any) -> str | None:
    """The name of an expression that may give another value each time it is computed, such as ``rand``."""
    return None if plan.deterministic() else _first(plan, lambda expression: not expression.deterministic())


def environmental(frame: DataFrame, plan: Any) -> str | None:
    """The name of an expression whose value Spark takes from its surroundings: the time, the user, the database."""
    catalyst = java(frame.sparkSession).org.apache.spark.sql.catalyst
    current = catalyst.trees.TreePattern.CURRENT_LIKE()
    if plan.containsPattern(current) and (name := _first(plan, lambda expression: expression.containsPattern(current))):
        return name
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
