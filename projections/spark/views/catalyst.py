"""Parts of plans, of Catalyst's own classes: Spark's Python face has no way from a plan or an expression to a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from projections.planning.plans import Node, java, plan_in_jvm
from projections.spark.scala import items

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Change = Callable[[Any], Any]  # another expression in the place of one, or None to look further in
Named = tuple[str, Node]  # a column of a frame, and the attribute that it is in a plan


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """The rows of a plan."""
    from pyspark.sql.classic.dataframe import DataFrame

    dataset = java(spark).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001 - as its own methods do


def as_column(spark: SparkSession, expression: Any) -> Column:
    """A column that computes an expression of Catalyst's."""
    from pyspark.sql.classic.column import Column

    return Column(java(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def as_expression(spark: SparkSession, column: Column) -> Any:
    """What stands for a column in an expression of Catalyst's."""
    expressions = java(spark).org.apache.spark.sql.classic.ExpressionUtils
    return expressions.expression(column._jc)  # noqa: SLF001 - a column's own


def sequence(spark: SparkSession, elements: Sequence[Any]) -> Any:
    """A sequence of Scala's."""
    return java(spark).PythonUtils.toSeq(list(elements))


def changed(spark: SparkSession, expression: Any, change: Change) -> Any:
    """An expression with others in the place of its parts."""
    instead = change(expression)
    if instead is not None:
        return instead
    children = [changed(spark, child, change) for child in items(expression.children())]
    return expression.withNewChildren(sequence(spark, children)) if children else expression


def kind_of(expression: Any) -> str:
    """The name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def optimised_plan(frame: DataFrame) -> Any:
    """The plan of a frame in the form in which Spark computes it: joins, filters and aggregates without subqueries."""
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the plan has no Python face


def relation(spark: SparkSession, frame: DataFrame, columns: Sequence[Named], *, also: Sequence[str] = ()) -> Any:
    """The rows of a frame in the place of others: its columns are the attributes of these, and further ones follow."""
    own = frame.select(*(_typed(frame, name, attribute.type) for name, attribute in columns), *also)
    plan = plan_in_jvm(own)
    given = items(plan.output())
    taken = zip(given, columns, strict=False)  # the further ones are taken as they are
    named = [_alias(spark, a, name, attribute.jvm.exprId()) for a, (name, attribute) in taken]
    return projection(spark, [*named, *given[len(columns) :]], plan)


def _typed(frame: DataFrame, name: str, kind: str) -> Column:
    column = frame[f"`{name}`"]
    return column if frame.schema[name].dataType.simpleString() == kind else column.cast(kind).alias(name)


def _alias(spark: SparkSession, expression: Any, name: str, expression_id: Any) -> Any:
    jvm = java(spark)
    nothing, none = sequence(spark, []), jvm.scala.Option.empty()
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    return expressions.Alias(expression, name, expression_id, nothing, none, nothing)


def projection(spark: SparkSession, named: Sequence[Any], below: Any) -> Any:
    """The operator that computes some expressions of each row."""
    return _operators(spark).Project(sequence(spark, named), below)


def selection(spark: SparkSession, plan: Any, columns: Sequence[Named]) -> DataFrame:
    """Attributes of a plan as the columns of a frame."""
    known = {attribute.exprId().id(): attribute for attribute in items(plan.output())}
    new_id = java(spark).org.apache.spark.sql.catalyst.expressions.NamedExpression.newExprId
    named = [_alias(spark, known[attribute.id], name, new_id()) for name, attribute in columns]
    return frame_of(spark, projection(spark, named, plan))


def filtering(spark: SparkSession, condition: Any, below: Any) -> Any:
    """The operator that chooses rows."""
    return _operators(spark).Filter(condition, below)


def aggregation(spark: SparkSession, node: Any, further: Sequence[Any], below: Any) -> Any:
    """An aggregate over other rows, which also returns further attributes that it groups by."""
    returned = sequence(spark, [*items(node.aggregateExpressions()), *further])
    return _operators(spark).Aggregate(node.groupingExpressions(), returned, below, node.hint())


def first_rows(spark: SparkSession, below: Any, order: Sequence[Any], key: Sequence[Any], limit: Any) -> Any:
    """The first rows in an order; those that it leaves equal come in the order of some attributes."""
    expressions = java(spark).org.apache.spark.sql.catalyst.expressions
    up = getattr(getattr(expressions, "Ascending$"), "MODULE$")
    nulls, none = up.defaultNullOrdering(), sequence(spark, [])
    ascending = [expressions.SortOrder(attribute, up, nulls, none) for attribute in key]
    operators, no_hint = _operators(spark), java(spark).scala.Option.empty()
    ordered = operators.Sort(sequence(spark, [*order, *ascending]), True, below, no_hint)
    return operators.GlobalLimit(limit, operators.LocalLimit(limit, ordered))


def distinct(spark: SparkSession, attributes: Sequence[Any], below: Any) -> Any:
    """The different values of some attributes."""
    by = sequence(spark, attributes)
    return _operators(spark).Aggregate(by, by, below, java(spark).scala.Option.empty())


def joined_by_last(spark: SparkSession, left: Any, right: Any) -> Any:
    """The inner join of rows by the last attribute of each side."""
    plans, expressions = java(spark).org.apache.spark.sql.catalyst.plans, java(spark).org.apache.spark.sql.catalyst
    equal = expressions.expressions.EqualTo(left.output().last(), right.output().last())
    inner, no_hint = plans.JoinType.apply("inner"), plans.logical.JoinHint.NONE()
    return plans.logical.Join(left, right, inner, java(spark).scala.Option.apply(equal), no_hint)


def _operators(spark: SparkSession) -> Any:
    return java(spark).org.apache.spark.sql.catalyst.plans.logical
