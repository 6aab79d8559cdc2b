"""The plan in which stages are cut: as Spark's optimizer writes it, with what it leaves to later steps written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from projections.planning.plans import plan_in_jvm
from projections.spark.scala import items
from projections.spark.views.catalyst import (
    as_column,
    changed,
    classes,
    frame_of,
    kind_of,
    projection,
    sequence,
    under,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_EXCLUDED: Final = "spark.sql.optimizer.excludedRules"
_SESSION: Final = "spark.sessionWindow"  # how Spark marks the column of a session, whose rows it merges as it groups


def normal_form(spark: SparkSession, frame: DataFrame) -> Any:
    """The plan of a frame in the form in which stages are cut: joins, filters and aggregates without subqueries.

    The optimizer repeats rows for several DISTINCT aggregates. Such a plan stays as it was analysed.
    """
    with _without(spark, "org.apache.spark.sql.catalyst.optimizer.MergeSubplans"):
        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - the plan has no Python face
    analysed, own = plan_in_jvm(frame), classes(spark)
    if "Expand" in _kinds(plan) and "Expand" not in _kinds(analysed):
        plan = own.named_groups.apply(own.unaliased.apply(analysed))
    return _written_out(spark, plan)


@contextmanager
def _without(spark: SparkSession, rule: str) -> Iterator[None]:
    """Leave out a rule of the optimizer: two subqueries of one value in a record would be one stage of both."""
    given = spark.conf.get(_EXCLUDED, None)
    spark.conf.set(_EXCLUDED, f"{given},{rule}" if given else rule)
    try:
        yield
    finally:
        spark.conf.set(_EXCLUDED, given) if given else spark.conf.unset(_EXCLUDED)


def _written_out(spark: SparkSession, plan: Any) -> Any:
    below = [_written_out(spark, child) for child in items(plan.children())]
    plan = plan.withNewChildren(sequence(spark, below)) if below else plan
    return _with_constants(spark, _with_existence(spark, _by_parts(spark, plan)))


def _kinds(plan: Any) -> set[str]:
    return {str(plan.nodeName())}.union(*map(_kinds, items(plan.children())))


def _by_parts(spark: SparkSession, plan: Any) -> Any:
    """The plan with the parts of a record, such as a window of time, in the place of it in what is grouped by."""
    given = items(plan.groupingExpressions()) if plan.nodeName() == "Aggregate" else []
    records = [one for one in given if one.dataType().typeName() == "struct"]
    if not records:
        return plan
    own, (rows,) = classes(spark), items(plan.children())
    parts = {record.exprId().id(): _fields(spark, record) for record in records}
    by = [one for one in given if one.exprId().id() not in parts]
    rows = projection(spark, [*items(rows.output()), *(one for named in parts.values() for one in named)], rows)
    held = {id: [one.toAttribute() for one in named] for id, named in parts.items()}
    for record in records:
        id = record.exprId().id()
        if record.metadata().contains(_SESSION):
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


def _with_existence(spark: SparkSession, plan: Any) -> Any:
    """The plan with a join of different values in the place of one that says whether any row compares equal."""
    if plan.nodeName() != "Join" or kind_of(plan.joinType()) != "ExistenceJoin":
        return plan
    own, (left, right) = classes(spark), items(plan.children())
    pairs = [_sides(left, right, part) for part in _conjuncts(plan.condition().get())]
    if None in pairs:
        return plan
    ours, theirs = zip(*pairs, strict=True)
    named = [under(spark, one, "value") for one in theirs]
    values = [one.toAttribute() for one in named]
    found = under(spark, own.literal.apply(True), "found")
    rows = projection(spark, [*items(right.output()), *named], right)
    different = own.aggregate(sequence(spark, values), sequence(spark, [*values, found]), rows, own.none)
    equal = [own.equal(a, b) for a, b in zip(ours, values, strict=True)]
    joined = own.join(left, different, own.left_outer, own.some(reduce(own.both, equal)), own.no_hint)
    exists = plan.joinType().exists()
    is_found = own.is_not_null(found.toAttribute().withNullability(True))
    return projection(spark, [*items(left.output()), under(spark, is_found, exists.name(), exists.exprId())], joined)


def _with_constants(spark: SparkSession, plan: Any) -> Any:
    """The plan with rows once for each of some constants in the place of a join with these."""
    if plan.nodeName() != "Join" or str(plan.joinType().toString()) not in ("Inner", "Cross"):
        return plan
    own, sides = classes(spark), items(plan.children())
    constants = next((one for one in sides if one.nodeName() == "LocalRelation"), None)
    if constants is None:
        return plan
    below = sides[0] if sides[1] is constants else sides[1]
    given = [_literals(spark, items(constants.output()), row) for row in frame_of(spark, constants).collect()]
    selections = [sequence(spark, [*items(below.output()), *values]) for values in given]
    attributes = sequence(spark, [*items(below.output()), *items(constants.output())])
    rows = own.expand(sequence(spark, selections), attributes, below)
    condition = plan.condition()
    return own.filter(condition.get(), rows) if condition.isDefined() else rows


def _literals(spark: SparkSession, attributes: Sequence[Any], row: Sequence[Any]) -> list[Any]:
    """The values of a row as expressions of the types of some attributes."""
    from pyspark.sql import functions as F

    kinds = [str(attribute.dataType().catalogString()) for attribute in attributes]
    columns = [F.lit(value).cast(kind).alias("one") for value, kind in zip(row, kinds, strict=True)]
    return [one.child() for one in items(plan_in_jvm(spark.range(1).select(*columns)).projectList())]


def _conjuncts(condition: Any) -> list[Any]:
    if kind_of(condition) != "And":
        return [condition]
    return [part for side in items(condition.children()) for part in _conjuncts(side)]


def _sides(left: Any, right: Any, condition: Any) -> tuple[Any, Any] | None:
    """What an equality compares: an expression of each side."""
    if kind_of(condition) == "EqualTo":
        for one, other in ((condition.left(), condition.right()), (condition.right(), condition.left())):
            if one.references().subsetOf(left.outputSet()) and other.references().subsetOf(right.outputSet()):
                return one, other
    return None


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
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    begins, ends = as_column(spark, start), as_column(spark, end)
    partition = Window.partitionBy(*(as_column(spark, one) for one in by))
    in_order = partition.orderBy(begins)
    before = F.max(ends).over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    rows, opens = _with(spark, rows, F.when(begins <= before, F.lit(None)).otherwise(begins), "opens")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows, first = _with(spark, rows, F.max(as_column(spark, opens)).over(so_far), str(start.name()))
    of_session = Window.partitionBy(*(as_column(spark, one) for one in (*by, first)))
    rows, last = _with(spark, rows, F.max(ends).over(of_session), str(end.name()))
    return rows, [first, last]


def _with(spark: SparkSession, rows: Any, column: Column, name: str) -> tuple[Any, Any]:
    """Rows with a further column, and the attribute that this is."""
    own = [as_column(spark, one) for one in items(rows.output())]
    plan = plan_in_jvm(frame_of(spark, rows).select(*own, column.alias(name)))
    return plan, plan.output().last()
