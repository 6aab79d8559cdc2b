"""A group-by view's analysed plan taken apart: what is grouped, by what, its aggregates, and what is made of these.

Expressions are Catalyst's own: they become columns of another query by putting columns in the place of their parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from projections.planning.plans import plan_in_jvm
from projections.spark.scala import items
from projections.spark.views.catalyst import (
    as_column,
    as_expression,
    changed,
    frame_of,
    is_attribute,
    kind_of,
    replaced,
)

_ALIASES = ("SubqueryAlias", "View")  # operators that only name what is below them
# Each of these operators makes its rows of one row each.
_ROW_BY_ROW = ("Project", "Filter", "Generate", *_ALIASES)


@dataclass(frozen=True)
class Measure:
    """One aggregate: a function of a column, which is null where FILTER leaves a row out.

    ``given`` is the type of the column, ``result`` Catalyst's of the aggregate; ``plain``, without DISTINCT.
    """

    number: int
    function: str
    column: Column
    given: str
    result: Any
    plain: bool


@dataclass(frozen=True)
class Grouping:
    """Rows, the columns they are grouped by, the aggregates, and the expressions of both that the view returns.

    An aggregate that comes twice is one measure: ``measures`` are by what Catalyst compares.
    """

    rows: DataFrame
    by: Mapping[str, Any]
    measures: Mapping[Any, Measure]
    returned: Mapping[str, Any]

    @property
    def keys(self) -> list[Column]:
        """The columns it is grouped by."""
        return [as_column(self.rows.sparkSession, key).alias(name) for name, key in self.by.items()]

    def columns_over(self, finals: Mapping[int, Column]) -> dict[str, Column]:
        """What the view returns, over its keys by name and a column for each measure."""
        spark = self.rows.sparkSession
        parts = {canonical: as_expression(spark, finals[m.number]) for canonical, m in self.measures.items()}
        parts |= {key.canonicalized(): as_expression(spark, F.col(name)) for name, key in self.by.items()}

        def instead(part: Any) -> Any:
            return parts.get(part.canonicalized())

        return {name: as_column(spark, changed(spark, e, instead)) for name, e in self.returned.items()}

    @property
    def is_row_by_row(self) -> bool:
        """Whether the grouped rows are made each from one of the table's."""
        return _is_row_by_row(plan_in_jvm(self.rows))

    @property
    def is_known_by_its_parts(self) -> bool:
        """Whether keys and aggregates say everything that is returned, and the keys keep their names."""
        parts = {*self.measures, *(key.canonicalized() for key in self.by.values())}
        returns_keys = all(n in self.returned and self.returned[n].semanticEquals(key) for n, key in self.by.items())
        return returns_keys and all(_consists_of(parts, expression) for expression in self.returned.values())


def taken_apart(result: DataFrame) -> Grouping | None:
    """The grouping at the top of a result, under nothing but selections; None where there is another operator."""
    plan = plan_in_jvm(result)
    aggregate, returned = _inlined(result.sparkSession, plan)
    if aggregate is None:
        return None
    aggregates = {part.canonicalized(): part for e in returned.values() for part in _aggregates(e)}
    measures = {c: _measure(result.sparkSession, n, part) for n, (c, part) in enumerate(aggregates.items())}
    named = {attribute.name(): returned[attribute.exprId().id()] for attribute in items(plan.output())}
    by = {_name_of(key, named): key for key in items(aggregate.groupingExpressions()) if is_attribute(key)}
    if len(by) < aggregate.groupingExpressions().size():
        return None
    return Grouping(frame_of(result.sparkSession, aggregate.child()), by, measures, named)


def _name_of(key: Any, returned: Mapping[str, Any]) -> str:
    """The name under which a key is returned, or its own."""
    own = str(key.name())
    names = [own, *returned] if own in returned else list(returned)
    return next((name for name in names if returned[name].semanticEquals(key)), own)


def _inlined(spark: SparkSession, node: Any) -> tuple[Any, dict[int, Any]]:
    """The aggregate at the top of a plan, and what each column of the plan is over the aggregate's input."""
    if node.nodeName() in _ALIASES:
        return _inlined(spark, node.child())
    if node.nodeName() == "Aggregate":
        return node, {e.exprId().id(): _bare(e) for e in items(node.aggregateExpressions())}
    if node.nodeName() != "Project":
        return None, {}
    aggregate, below = _inlined(spark, node.child())
    selected = items(node.projectList()) if aggregate is not None else []
    return aggregate, {e.exprId().id(): replaced(spark, _bare(e), below) for e in selected}


def _bare(named: Any) -> Any:
    return named.child() if kind_of(named) == "Alias" else named


def _measure(spark: SparkSession, number: int, aggregate: Any) -> Measure:
    function = aggregate.aggregateFunction()
    inputs = [as_column(spark, part) for part in items(function.children())]
    given = items(function.children())[0].dataType().simpleString() if inputs else ""
    column = inputs[0] if inputs else F.lit(None)
    if aggregate.filter().isDefined():
        column = F.when(as_column(spark, aggregate.filter().get()), column)
    plain = not aggregate.isDistinct() and len(inputs) == 1
    return Measure(number, function.prettyName(), column, given, aggregate.dataType(), plain)


def _aggregates(expression: Any) -> Iterator[Any]:
    if kind_of(expression) == "AggregateExpression":
        yield expression
        return
    for child in items(expression.children()):
        yield from _aggregates(child)


def _consists_of(parts: set[Any], expression: Any) -> bool:
    if expression.canonicalized() in parts:
        return True
    return not is_attribute(expression) and all(_consists_of(parts, child) for child in items(expression.children()))


def _is_row_by_row(node: Any) -> bool:
    children = items(node.children())
    if not node.subqueries().isEmpty():
        return False
    return not children or (node.nodeName() in _ROW_BY_ROW and _is_row_by_row(children[0]))
