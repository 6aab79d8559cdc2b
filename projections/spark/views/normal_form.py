"""The plan in which stages are cut: as Spark's optimizer writes it, with what it leaves to later steps written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from projections.planning.plans import plan_in_jvm
from projections.planning.rows import MARK
from projections.spark.scala import items
from projections.spark.views.catalyst import (
    as_column,
    changed,
    classes,
    kind_of,
    projection,
    rewritten,
    sequence,
    under,
)
from projections.spark.views.plain_operators import plain, with_column


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

    def instead(part: Any) -> Any:
        return whole.get(part.exprId().id()) if kind_of(part) == "AttributeReference" else None

    def put(one: Any) -> Any:
        record = instead(one)
        return changed(spark, one, instead) if record is None else under(spark, record, one.name(), one.exprId())

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
