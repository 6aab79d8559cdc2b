"""Parts of plans, of Catalyst's own classes: Spark's Python face has no way from a plan or an expression to a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from projections.declaring.naming import ROW_KEY_PART
from projections.planning.plans import Node, java, plan_in_jvm
from projections.planning.rows import Untraceable
from projections.spark.scala import items

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Change = Callable[[Any], Any]  # another expression in the place of one, or None to look further in
Named = tuple[str, Node]  # a column of a frame, and the attribute that it is in a plan


class _Classes:
    """Classes and objects of Catalyst's: py4j asks the JVM for each part of a name that leads to one."""

    def __init__(self, spark: SparkSession) -> None:
        catalyst = java(spark).org.apache.spark.sql.catalyst
        expressions, plans = catalyst.expressions, catalyst.plans
        self.alias, self.equal, self.field = expressions.Alias, expressions.EqualTo, expressions.GetStructField
        self.record, self.order = expressions.CreateNamedStruct, expressions.SortOrder
        self.specification, self.new_id = expressions.WindowSpecDefinition, expressions.NamedExpression.newExprId
        self.literal, self.up = _object(expressions, "Literal"), _object(expressions, "Ascending")
        self.project, self.filter = plans.logical.Project, plans.logical.Filter
        self.aggregate, self.window = plans.logical.Aggregate, plans.logical.Window
        self.join, self.sort = plans.logical.Join, plans.logical.Sort
        self.cast, self.text = (
            _object(expressions, "Cast"),
            _object(java(spark).org.apache.spark.sql.types, "StringType"),
        )
        self.global_limit, self.local_limit = plans.logical.GlobalLimit, plans.logical.LocalLimit
        self.left_outer, self.no_hint = plans.JoinType.apply("leftouter"), plans.logical.JoinHint.NONE()
        self.unaliased = catalyst.analysis.EliminateSubqueryAliases
        self.named_groups = catalyst.optimizer.PullOutGroupingExpressions
        self.some, self.none = java(spark).scala.Option.apply, java(spark).scala.Option.empty()
        self.sequence, self.nothing = java(spark).PythonUtils.toSeq, java(spark).PythonUtils.toSeq([])


@lru_cache(maxsize=4)
def _classes(spark: SparkSession) -> _Classes:
    return _Classes(spark)


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
    return _classes(spark).sequence(list(elements))


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


def relation(spark: SparkSession, frame: DataFrame, columns: Sequence[Named], *, also: Sequence[str] = ()) -> Any:
    """The rows of a frame in the place of others: its columns are the attributes of these, and further ones follow."""
    own = frame.select(*_typed(frame, columns), *also)
    plan = plan_in_jvm(own)
    given = items(plan.output())
    taken = zip(given, columns, strict=False)  # the further ones are taken as they are
    named = [_alias(spark, a, name, attribute.jvm.exprId()) for a, (name, attribute) in taken]
    return projection(spark, [*named, *given[len(columns) :]], plan)


def _typed(frame: DataFrame, columns: Sequence[Named]) -> Iterator[Column]:
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for name, attribute in columns:
        column = F.col(f"`{name}`")
        yield column if kinds[name] == attribute.type else column.cast(attribute.type).alias(name)


def _alias(spark: SparkSession, expression: Any, name: str, expression_id: Any) -> Any:
    own = _classes(spark)
    return own.alias(expression, name, expression_id, own.nothing, own.none, own.nothing)


def projection(spark: SparkSession, named: Sequence[Any], below: Any) -> Any:
    """The operator that computes some expressions of each row."""
    return _classes(spark).project(sequence(spark, named), below)


def selection(spark: SparkSession, plan: Any, columns: Sequence[Named]) -> DataFrame:
    """Attributes of a plan as the columns of a frame."""
    known = {attribute.exprId().id(): attribute for attribute in items(plan.output())}
    new_id = _classes(spark).new_id
    named = [_alias(spark, known[attribute.id], name, new_id()) for name, attribute in columns]
    return frame_of(spark, projection(spark, named, plan))


def row_key(spark: SparkSession, part: int, key: Sequence[Any], width: int) -> list[Any]:
    """The number of a part of a union, and the key of its rows as so many texts, under attributes of their own."""
    own = _classes(spark)
    texts = [own.cast.apply(attribute, own.text, own.some("UTC"), True) for attribute in key]
    values = [own.literal.apply(part), *texts, *[own.literal.create(None, own.text)] * (width - len(key))]
    names = ["part", *(f"{ROW_KEY_PART}{number}" for number in range(1, width + 1))]
    return [_alias(spark, value, name, own.new_id()) for value, name in zip(values, names, strict=True)]


def filtering(spark: SparkSession, condition: Any, below: Any) -> Any:
    """The operator that chooses rows."""
    return _classes(spark).filter(condition, below)


def aggregation(spark: SparkSession, node: Any, further: Sequence[Any], below: Any) -> Any:
    """An aggregate over other rows, which also returns further attributes that it groups by."""
    returned = sequence(spark, [*items(node.aggregateExpressions()), *further])
    return _classes(spark).aggregate(node.groupingExpressions(), returned, below, node.hint())


def first_rows(spark: SparkSession, below: Any, order: Sequence[Any], key: Sequence[Any], limit: Any) -> Any:
    """The first rows in an order; those that it leaves equal come in the order of some attributes."""
    own = _classes(spark)
    ordered = own.sort(sequence(spark, [*order, *_ascending(spark, key)]), True, below, own.none)
    return own.global_limit(limit, own.local_limit(limit, ordered))


def window(spark: SparkSession, node: Any, key: Sequence[Any], below: Any) -> Any:
    """Window functions over other rows; those that are equal in its order come in the order of some attributes."""
    order = node.orderSpec()
    if not key or order.isEmpty():
        return node.withNewChildren(sequence(spark, [below]))
    total = sequence(spark, [*items(order), *_ascending(spark, key)])
    own = _classes(spark)

    def ordered(part: Any) -> Any:
        if kind_of(part) != "WindowSpecDefinition":
            return None
        return own.specification(part.partitionSpec(), total, part.frameSpecification())

    named = sequence(spark, [changed(spark, one, ordered) for one in items(node.windowExpressions())])
    return own.window(named, node.partitionSpec(), total, below, node.hint())


def normal_form(spark: SparkSession, frame: DataFrame) -> Any:
    """The plan of a frame in the form in which stages are cut: joins, filters and aggregates without subqueries.

    The optimizer repeats rows for several DISTINCT aggregates. Such a plan stays as it was analysed.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the plan has no Python face
    analysed, own = plan_in_jvm(frame), _classes(spark)
    if "Expand" in _kinds(plan) and "Expand" not in _kinds(analysed):
        plan = own.named_groups.apply(own.unaliased.apply(analysed))
    return _by_parts(spark, plan)


def _kinds(plan: Any) -> set[str]:
    return {str(plan.nodeName())}.union(*map(_kinds, items(plan.children())))


def _by_parts(spark: SparkSession, plan: Any) -> Any:
    """The plan with the parts of a record, such as a window of time, in the place of it in what is grouped by."""
    below = [_by_parts(spark, child) for child in items(plan.children())]
    plan = plan.withNewChildren(sequence(spark, below)) if below else plan
    records = [one for one in _grouping(plan) if one.dataType().typeName() == "struct"]
    if not records:
        return plan
    if any(record.metadata().contains("spark.sessionWindow") for record in records):
        raise Untraceable(
            "session_window, whose end each row may move",
            "declare the sessions as a table, windowed('visits', clicks, session('1 hour', by='user_id'), on='at'),"
            " and group by its window_start",
        )
    own = _classes(spark)
    parts, whole = list[Any](), dict[int, Any]()
    for record in records:
        names = list(record.dataType().fieldNames())
        fields = [own.field(record, place, own.none) for place in range(len(names))]
        named = [_alias(spark, f, f"{record.name()}_{n}", own.new_id()) for f, n in zip(fields, names, strict=True)]
        parts += named
        pairs = [e for n, f in zip(names, named, strict=True) for e in (own.literal.apply(n), f.toAttribute())]
        whole[record.exprId().id()] = own.record(sequence(spark, pairs))

    def instead(part: Any) -> Any:
        return whole.get(part.exprId().id()) if kind_of(part) == "AttributeReference" else None

    def put(one: Any) -> Any:
        record = instead(one)
        return changed(spark, one, instead) if record is None else _alias(spark, record, one.name(), one.exprId())

    rows = projection(spark, [*items(below[0].output()), *parts], below[0])
    by = [one for one in items(plan.groupingExpressions()) if instead(one) is None]
    returned = sequence(spark, [put(one) for one in items(plan.aggregateExpressions())])
    grouping = sequence(spark, [*by, *(one.toAttribute() for one in parts)])
    return own.aggregate(grouping, returned, rows, plan.hint())


def _grouping(plan: Any) -> list[Any]:
    return items(plan.groupingExpressions()) if plan.nodeName() == "Aggregate" else []


def distinct(spark: SparkSession, attributes: Sequence[Any], below: Any) -> Any:
    """The different values of some attributes."""
    by = sequence(spark, attributes)
    return _classes(spark).aggregate(by, by, below, _classes(spark).none)


def joined_by_last(spark: SparkSession, left: Any, right: Any) -> Any:
    """Rows with the one row of another side, or with nulls if there is none, by the last attribute of each side."""
    own = _classes(spark)
    equal = own.equal(left.output().last(), right.output().last())
    return own.join(left, right, own.left_outer, own.some(equal), own.no_hint)


def _ascending(spark: SparkSession, attributes: Sequence[Any]) -> list[Any]:
    own = _classes(spark)
    nulls = own.up.defaultNullOrdering()
    return [own.order(attribute, own.up, nulls, own.nothing) for attribute in attributes]


def _object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
