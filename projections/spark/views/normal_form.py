"""The plan in which stages are cut: as Spark's optimizer writes it, with what it leaves to later steps written out.

Operators that few queries have are written as those of which stages are made: filters, windows, items and groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from projections.planning.plans import plan_in_jvm
from projections.planning.refusals import MARK, Untraceable
from projections.spark.scala import items
from projections.spark.views.catalyst import (
    as_column,
    classes,
    frame_of,
    is_attribute,
    kind_of,
    projection,
    replaced,
    rewritten,
    sequence,
    under,
)


def plain(spark: SparkSession, plan: Any) -> Any:
    """An operator that has the same rows. Untraceable for the first rows of a group in any order."""
    match plan.nodeName():
        case "Generate":
            made = {"ReplicateRows": _copies, "Stack": _stacked}.get(kind_of(plan.generator()))
            return plan if made is None else made(spark, plan)
        case "BatchEvalPython" | "ArrowEvalPython":
            return _with_functions(spark, plan)
        case "Aggregate" if any(one.foldable() for one in items(plan.groupingExpressions())):
            return _grouped_by_column(spark, plan)
        case "LocalRelation" if not plan.data().isEmpty():
            return _listed(spark, plan)
        case "Window" if plan.orderSpec().isEmpty() and "row_number()" in str(plan.windowExpressions()):
            return _in_order(spark, plan)
    return plan


def with_column(spark: SparkSession, rows: Any, column: Column, name: str) -> tuple[Any, Any]:
    """Rows with a further column, and the attribute that this is."""
    own = [as_column(spark, one) for one in items(rows.output())]
    plan = plan_in_jvm(frame_of(spark, rows).select(*own, column.alias(name)))
    return plan, plan.output().last()


def _with_functions(spark: SparkSession, plan: Any) -> Any:
    """Functions in Python as columns, as they were before Spark took them out."""
    named = [_as(spark, *pair) for pair in zip(items(plan.udfs()), items(plan.resultAttrs()), strict=True)]
    return projection(spark, [*items(plan.child().output()), *named], plan.child())


# ---- rows by their place


def _in_order(spark: SparkSession, window: Any) -> Any:
    """The number of a row in the order of a LIMIT in a subquery, which Spark loses behind what that selects."""
    project = window.child()
    if project.nodeName() != "Project" or project.child().nodeName() != "Sort":
        raise Untraceable("LIMIT in a subquery that is computed for each row, without an order", "write ORDER BY, too")
    rows, place = _numbered(spark, project.child(), items(window.partitionSpec()))
    number = window.windowExpressions().last()
    named = under(spark, place, str(number.name()), number.exprId())
    return projection(spark, [*items(project.projectList()), named], rows)


def _numbered(spark: SparkSession, sort: Any, by: Sequence[Any]) -> tuple[Any, Any]:
    """The rows below a sort with the place of each in its order."""
    partition = Window.partitionBy(*(as_column(spark, one) for one in by))
    order = [_ordering(spark, one) for one in items(sort.order())]
    return with_column(spark, sort.child(), F.row_number().over(partition.orderBy(*order)), "place")


def _ordering(spark: SparkSession, order: Any) -> Column:
    way = f"{order.direction().sql()}_{order.nullOrdering().sql()}".replace(" ", "_").lower()
    found: Column = getattr(as_column(spark, order.child()), way)()
    return found


# ---- several rows of one


def _copies(spark: SparkSession, plan: Any) -> Any:
    """Rows as often as EXCEPT ALL and INTERSECT ALL count them: once for each number up to that."""
    number, *values = items(plan.generator().children())
    copies = F.explode(F.sequence(F.lit(1).cast("bigint"), as_column(spark, number)))
    rows, _ = with_column(spark, plan.child(), copies, "copy")
    named = zip(values, items(plan.generatorOutput()), strict=True)
    return projection(spark, [_as(spark, value, attribute) for value, attribute in named], rows)


def _listed(spark: SparkSession, relation: Any) -> Any:
    """The rows of VALUES as the items of a list in one row: each has a place."""
    given = items(relation.output())
    records = [_literals(map(F.lit, row), given) for row in frame_of(spark, relation).collect()]
    rows = spark.sql("SELECT 1 AS one").select(F.posexplode(F.array(*records)))
    values = (F.col("col")[f"c{n}"].alias(f"c{n}") for n in range(len(given)))
    plan = plan_in_jvm(rows.select(*values))
    return projection(spark, [_as(spark, *pair) for pair in zip(items(plan.output()), given, strict=True)], plan)


def _literals(values: Iterable[Column], given: Sequence[Any]) -> Column:
    """Values of the types of some attributes as one record."""
    kinds = (one.dataType().sql() for one in given)
    return F.struct(*(v.cast(kind).alias(f"c{n}") for n, (v, kind) in enumerate(zip(values, kinds, strict=True))))


def _stacked(spark: SparkSession, plan: Any) -> Any:
    """The rows of ``stack`` as those of several groupings: once for each."""
    own, (number, *values) = classes(spark), items(plan.generator().children())
    below, given = items(plan.child().output()), items(plan.generatorOutput())
    starts = range(0, int(str(number.sql())) * len(given), len(given))
    values += [own.literal.create(None, given[n].dataType()) for n in range(len(values) % len(given), len(given))]
    selections = [sequence(spark, [*below, *values[start : start + len(given)]]) for start in starts]
    rows = own.expand(sequence(spark, selections), sequence(spark, [*below, *given]), plan.child())
    return projection(spark, [*items(plan.requiredChildOutput()), *given], rows)


def _as(spark: SparkSession, expression: Any, attribute: Any) -> Any:
    """An expression as an attribute that others read."""
    same = is_attribute(expression) and expression.exprId().id() == attribute.exprId().id()
    return attribute if same else under(spark, expression, str(attribute.name()), attribute.exprId())


def _grouped_by_column(spark: SparkSession, plan: Any) -> Any:
    """An aggregate by a constant as one by a column that has it: without rows, it has no group."""
    given = items(plan.groupingExpressions())
    named = {place: under(spark, one, "groupingexpression") for place, one in enumerate(given) if one.foldable()}
    rows = projection(spark, [*items(plan.child().output()), *named.values()], plan.child())
    by = [named[place].toAttribute() if place in named else one for place, one in enumerate(given)]
    return classes(spark).aggregate(sequence(spark, by), plan.aggregateExpressions(), rows, plan.hint())


def normal_form(spark: SparkSession, frame: DataFrame) -> Any:
    """The plan of a frame in the form in which stages are cut: joins, filters and aggregates without subqueries.

    The optimizer repeats rows for several DISTINCT aggregates. Such a plan stays as it was analysed.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the plan has no Python face
    analysed, own = plan_in_jvm(frame), classes(spark)
    if "Expand" in _kinds(plan) and "Expand" not in _kinds(analysed):
        plan = own.named_groups.apply(own.unaliased.apply(analysed))
    return rewritten(spark, plan, lambda one: _by_parts(spark, plain(spark, one)))


def _kinds(plan: Any) -> set[str]:
    return {str(plan.nodeName())}.union(*map(_kinds, items(plan.children())))


def _by_parts(spark: SparkSession, plan: Any) -> Any:
    """An operator with the parts of a record, such as a window of time, in the place of it in what it groups by."""
    given = items(plan.groupingExpressions()) if plan.nodeName() == "Aggregate" else []
    records = [one for one in given if one.dataType().typeName() == "struct"]
    if not records:
        return plan
    own, rows = classes(spark), plan.child()
    parts = {record.exprId().id(): _fields(spark, record) for record in records}
    by = [one for one in given if one.exprId().id() not in parts]
    rows = projection(spark, [*items(rows.output()), *(one for named in parts.values() for one in named)], rows)
    held = {id: [one.toAttribute() for one in named] for id, named in parts.items()}
    for record in records:
        id = record.exprId().id()
        if record.metadata().contains(MARK):
            others = [*by, *(one for other in held if other != id for one in held[other])]
            rows, held[id] = _with_sessions(spark, rows, others, *held[id])
    whole = {record.exprId().id(): _record(spark, record, held[record.exprId().id()]) for record in records}

    def put(one: Any) -> Any:
        record = whole.get(one.exprId().id()) if is_attribute(one) else None
        return replaced(spark, one, whole) if record is None else under(spark, record, one.name(), one.exprId())

    returned = sequence(spark, [put(one) for one in items(plan.aggregateExpressions())])
    grouping = sequence(spark, [*by, *(one for attributes in held.values() for one in attributes)])
    return own.aggregate(grouping, returned, rows, plan.hint())


def _fields(spark: SparkSession, record: Any) -> list[Any]:
    own, names = classes(spark), list(record.dataType().fieldNames())
    fields = [own.field(record, place, own.none) for place in range(len(names))]
    return [under(spark, field, f"{record.name()}_{name}") for field, name in zip(fields, names, strict=True)]


def _record(spark: SparkSession, record: Any, attributes: Sequence[Any]) -> Any:
    own, names = classes(spark), record.dataType().fieldNames()
    pairs = [part for name, held in zip(names, attributes, strict=True) for part in (own.literal.apply(name), held)]
    return own.record(sequence(spark, pairs))


def _with_sessions(spark: SparkSession, rows: Any, by: Sequence[Any], start: Any, end: Any) -> tuple[Any, list[Any]]:
    """Rows with the start and the end of the sessions that theirs merge to: one that begins within another goes on.

    Spark's operator that merges them is no part of a logical plan, and its condition is the same.
    """
    begins, ends = as_column(spark, start), as_column(spark, end)
    partition = Window.partitionBy(*(as_column(spark, one) for one in by))
    in_order = partition.orderBy(begins)
    before = F.max(ends).over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    rows, opens = with_column(spark, rows, F.when(begins <= before, F.lit(None)).otherwise(begins), "opens")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows, first = with_column(spark, rows, F.max(as_column(spark, opens)).over(so_far), str(start.name()))
    of_session = Window.partitionBy(*(as_column(spark, one) for one in (*by, first)))
    rows, last = with_column(spark, rows, F.max(ends).over(of_session), str(end.name()))
    return rows, [first, last]
