"""Parts of plans, of Catalyst's own classes: Spark's Python face has no way from a plan or an expression to a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from projections.declaring.naming import ALL_ROWS, ROW_KEY_PART
from projections.planning.plans import Node, java, plan_in_jvm
from projections.spark.scala import items

Change = Callable[[Any], Any]  # another node in the place of one; of `changed`, None to look further in
Named = tuple[str, Node]  # a column of a frame, and the attribute that it is in a plan


class Classes:
    """Classes and objects of Catalyst's: py4j asks the JVM for each part of a name that leads to one."""

    def __init__(self, spark: SparkSession) -> None:
        catalyst = java(spark).org.apache.spark.sql.catalyst
        expressions, plans = catalyst.expressions, catalyst.plans
        self.alias, self.equal, self.field = expressions.Alias, expressions.EqualTo, expressions.GetStructField
        self.alike, self.both, self.first = expressions.EqualNullSafe, expressions.And, expressions.Coalesce
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
        self.is_not_null = expressions.IsNotNull
        self.offset, self.expand = plans.logical.Offset, plans.logical.Expand
        self.join_type, self.no_hint = plans.JoinType.apply, plans.logical.JoinHint.NONE()
        self.generate, self.union = plans.logical.Generate, plans.logical.Union
        self.repartition = plans.logical.Repartition
        self.numbered, self.attribute = expressions.PosExplode, expressions.AttributeReference
        self.no_marks = java(spark).org.apache.spark.sql.types.Metadata.empty()
        self.unaliased = catalyst.analysis.EliminateSubqueryAliases
        self.named_groups = catalyst.optimizer.PullOutGroupingExpressions
        self.some, self.none = java(spark).scala.Option.apply, java(spark).scala.Option.empty()
        self.sequence, self.nothing = java(spark).PythonUtils.toSeq, java(spark).PythonUtils.toSeq([])


@lru_cache(maxsize=4)
def classes(spark: SparkSession) -> Classes:
    """The same for a session, made once."""
    return Classes(spark)


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """The rows of a plan."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    dataset = java(spark).org.apache.spark.sql.classic.Dataset
    return ClassicFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001 - as its own methods do


def as_column(spark: SparkSession, expression: Any) -> Column:
    """A column that computes an expression of Catalyst's."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(java(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def as_expression(spark: SparkSession, column: Column) -> Any:
    """What stands for a column in an expression of Catalyst's."""
    expressions = java(spark).org.apache.spark.sql.classic.ExpressionUtils
    return expressions.expression(column._jc)  # noqa: SLF001 - a column's own


def sequence(spark: SparkSession, elements: Sequence[Any]) -> Any:
    """A sequence of Scala's."""
    return classes(spark).sequence(list(elements))


def rewritten(spark: SparkSession, plan: Any, change: Change) -> Any:
    """A plan with others in the place of its operators, those below an operator first."""
    below = [rewritten(spark, child, change) for child in items(plan.children())]
    return change(plan.withNewChildren(sequence(spark, below)) if below else plan)


_DIVIDED: Final = ("Join", "Union", "Expand")
"""Operators whose rows Spark may not know to be in one partition, though all below them are."""


def undivided(frame: DataFrame) -> DataFrame:
    """The same rows, by a plan that says of each operator that its rows are in one partition: nothing is exchanged.

    For inputs of one partition each. Spark knows an inner join of two partitions by either side's, which it does not
    take for the one partition that the next join wants.
    """
    spark, own = frame.sparkSession, classes(frame.sparkSession)

    def of_one(node: Any) -> Any:
        return own.repartition(1, False, node) if node.nodeName() in _DIVIDED else node

    optimized = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the plan has no Python face
    return frame_of(spark, rewritten(spark, optimized, of_one))


def changed(spark: SparkSession, expression: Any, change: Change) -> Any:
    """An expression with others in the place of its parts."""
    instead = change(expression)
    if instead is not None:
        return instead
    children = [changed(spark, child, change) for child in items(expression.children())]
    return expression.withNewChildren(sequence(spark, children)) if children else expression


def replaced(spark: SparkSession, expression: Any, made: Mapping[int, Any]) -> Any:
    """An expression with others in the place of attributes, by the numbers of these."""
    return changed(spark, expression, lambda part: made.get(part.exprId().id()) if is_attribute(part) else None)


def kind_of(expression: Any) -> str:
    """The name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def is_attribute(expression: Any) -> bool:
    """Whether an expression is a column of what is below it."""
    return kind_of(expression) == "AttributeReference"


def relation(spark: SparkSession, frame: DataFrame, columns: Sequence[Named]) -> Any:
    """The rows of a frame in the place of others: its columns are the attributes of these."""
    plan = plan_in_jvm(frame.select(*_typed(frame, columns)))
    taken = zip(items(plan.output()), columns, strict=True)
    return projection(spark, [under(spark, a, name, attribute.jvm.exprId()) for a, (name, attribute) in taken], plan)


def _typed(frame: DataFrame, columns: Sequence[Named]) -> Iterator[Column]:
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for name, attribute in columns:
        column = F.col(f"`{name}`")
        yield column if kinds[name] == attribute.type else column.cast(attribute.type).alias(name)


def under(spark: SparkSession, expression: Any, name: str, expression_id: Any = None) -> Any:
    """An expression under a name, as the attribute of a number or of a new one."""
    own = classes(spark)
    return own.alias(expression, name, expression_id or own.new_id(), own.nothing, own.none, own.nothing)


def projection(spark: SparkSession, named: Sequence[Any], below: Any) -> Any:
    """The operator that computes some expressions of each row."""
    return classes(spark).project(sequence(spark, named), below)


def selection(spark: SparkSession, plan: Any, columns: Sequence[Named]) -> DataFrame:
    """Attributes of a plan as the columns of a frame."""
    known = {attribute.exprId().id(): attribute for attribute in items(plan.output())}
    named = [under(spark, known[attribute.id], name) for name, attribute in columns]
    return frame_of(spark, projection(spark, named, plan))


def row_key(spark: SparkSession, part: int, key: Sequence[Any], width: int) -> list[Any]:
    """The number of a part of a union, and the key of its rows as so many texts, under attributes of their own."""
    own = classes(spark)
    texts = [own.cast.apply(attribute, own.text, own.some("UTC"), True) for attribute in key]
    values = [own.literal.apply(part), *texts, *[own.literal.create(None, own.text)] * (width - len(key))]
    names = ["part", *(f"{ROW_KEY_PART}{number}" for number in range(1, width + 1))]
    return [under(spark, value, name) for value, name in zip(values, names, strict=True)]


def filtering(spark: SparkSession, condition: Any, below: Any) -> Any:
    """The operator that chooses rows."""
    return classes(spark).filter(condition, below)


def aggregation(spark: SparkSession, node: Any, further: Sequence[Any], below: Any) -> Any:
    """An aggregate over other rows, which also returns further attributes that it groups by."""
    returned = sequence(spark, [*items(node.aggregateExpressions()), *further])
    return classes(spark).aggregate(node.groupingExpressions(), returned, below, node.hint())


def in_order(spark: SparkSession, below: Any, order: Sequence[Any], key: Sequence[Any]) -> Any:
    """Rows in an order; those that it leaves equal come in the order of some attributes."""
    own = classes(spark)
    return own.sort(sequence(spark, [*order, *_ascending(spark, key)]), True, below, own.none)


def bounded(spark: SparkSession, below: Any, bounds: Sequence[Any]) -> Any:
    """Rows without those that limits and offsets leave out, the innermost first; a local limit only repeats these."""
    own = classes(spark)
    for one in bounds:
        match str(one.nodeName()):
            case "GlobalLimit":
                below = own.global_limit(one.limitExpr(), own.local_limit(one.limitExpr(), below))
            case "Offset":
                below = own.offset(one.offsetExpr(), below)
    return below


def window(spark: SparkSession, node: Any, key: Sequence[Any], below: Any) -> Any:
    """Window functions over other rows; those that are equal in its order come in the order of some attributes."""
    order = node.orderSpec()
    if not key or order.isEmpty():
        return node.withNewChildren(sequence(spark, [below]))
    total = sequence(spark, [*items(order), *_ascending(spark, key)])
    own = classes(spark)

    def ordered(part: Any) -> Any:
        if kind_of(part) != "WindowSpecDefinition":
            return None
        return own.specification(part.partitionSpec(), total, part.frameSpecification())

    named = sequence(spark, [changed(spark, one, ordered) for one in items(node.windowExpressions())])
    return own.window(named, node.partitionSpec(), total, below, node.hint())


def distinct(spark: SparkSession, attributes: Sequence[Any], below: Any) -> Any:
    """The different values of some attributes."""
    by = sequence(spark, attributes)
    return classes(spark).aggregate(by, by, below, classes(spark).none)


Pairs = Sequence[tuple[Any, Any]]


def joined(
    spark: SparkSession,
    how: str,
    sides: Sequence[Any],
    equal: Pairs,
    alike: Pairs = (),
    others: Sequence[Any] = (),
    *,
    hint: Any = None,
) -> Any:
    """A join of some kind, by attributes that are equal, or alike with nulls, and further conditions."""
    own, (left, right) = classes(spark), sides
    parts = [*(own.equal(a, b) for a, b in equal), *(own.alike(a, b) for a, b in alike), *others]
    condition = own.some(reduce(own.both, parts)) if parts else own.none
    return own.join(left, right, own.join_type(how.replace(" ", "")), condition, hint or own.no_hint)


LISTING: Final = ("Explode", "PosExplode", "Inline")
"""Generators of a row for each item."""


def listed(spark: SparkSession, node: Any, place: Any, below: Any) -> Any:
    """Rows with the items of a list or of a map, and the place of each."""
    own, generator = classes(spark), node.generator()
    given, kind = items(node.generatorOutput()), kind_of(generator)
    if kind == "PosExplode":
        return own.generate(generator, own.nothing, node.outer(), own.none, sequence(spark, given), below)
    made = given
    if kind == "Inline":
        record = generator.child().dataType().elementType()
        made = [own.attribute("item", record, True, own.no_marks, own.new_id(), own.nothing)]
    numbered = sequence(spark, [place, *made])
    rows = own.generate(own.numbered(generator.child()), own.nothing, node.outer(), own.none, numbered, below)
    if kind != "Inline":
        return rows
    fields = [own.field(made[0], n, own.none) for n in range(len(given))]
    named = [under(spark, f, str(a.name()), a.exprId()) for f, a in zip(fields, given, strict=True)]
    return projection(spark, [*items(below.output()), place, *named], rows)


def number(spark: SparkSession) -> Any:
    """An attribute for the place of an item, or of a grouping among several."""
    own = classes(spark)
    return own.attribute("pos", own.literal.apply(0).dataType(), True, own.no_marks, own.new_id(), own.nothing)


def repeated(spark: SparkSession, node: Any, names: Sequence[Any], kept: Sequence[Any], below: Any) -> Any:
    """Rows once for each selection of an Expand, with the columns that are kept and the number of the selection."""
    own, parts = classes(spark), list[Any]()
    for place, listed in enumerate(items(node.projections())):
        values = [*items(listed), *kept, own.literal.apply(place)]
        pairs = zip(values, names, strict=True)
        named = [under(spark, v, str(a.name()), None if place else a.exprId()) for v, a in pairs]
        parts.append(projection(spark, named, below))
    return own.union(sequence(spark, parts), False, False)


def truth(spark: SparkSession) -> Any:
    """What a row has that is found, under an attribute of its own."""
    return under(spark, classes(spark).literal.apply(True), "found")


def is_found(spark: SparkSession, found: Any, answer: Any) -> Any:
    """Whether a row was found, as the attribute of an answer."""
    return under(spark, classes(spark).is_not_null(found.withNullability(True)), str(answer.name()), answer.exprId())


def shared_value(spark: SparkSession) -> Any:
    """One value for all rows, under an attribute of its own."""
    return under(spark, classes(spark).literal.apply(0), ALL_ROWS)


def either(spark: SparkSession, pairs: Pairs) -> list[Any]:
    """The values of pairs of attributes that are equal or of which one is null, under attributes of their own."""
    own = classes(spark)
    return [under(spark, own.first(sequence(spark, [a, b])), str(a.name())) for a, b in pairs]


def instead(spark: SparkSession, alias: Any, child: Any) -> Any:
    """The same name of another expression."""
    return alias.withNewChildren(sequence(spark, [child]))


def _ascending(spark: SparkSession, attributes: Sequence[Any]) -> list[Any]:
    own = classes(spark)
    nulls = own.up.defaultNullOrdering()
    return [own.order(attribute, own.up, nulls, own.nothing) for attribute in attributes]


def _object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
