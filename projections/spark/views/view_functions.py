"""View functions on Spark: their columns, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from projections.declaring.any_table import AnyTable, require_flat
from projections.declaring.binding import check, may_not_match
from projections.declaring.columns import SCOPE, ColumnType, hidden
from projections.declaring.group import ProjectionGroup, as_table
from projections.declaring.naming import checked_columns
from projections.declaring.timing.promises import require_row_time
from projections.declaring.views import Planned, Reference, View, view_behind
from projections.errors import InvalidDefinition
from projections.planning.expressions import require_no_null_answer
from projections.planning.nearness import nearness
from projections.planning.partitions import require_partitioned
from projections.planning.personal import personal_columns as personal_in
from projections.planning.planner import plan as walk
from projections.planning.plans import (
    ROLE,
    Node,
    analysed_plan,
    environmental,
    leaves,
    nondeterministic,
    plan_in_jvm,
    plan_of,
    role,
)
from projections.planning.refusals import Untraceable, require_merged_sessions
from projections.spark.failures import analysed
from projections.spark.nesting import column_type
from projections.spark.views.blocks import StageFunction
from projections.spark.views.normal_form import normal_form
from projections.spark.views.partials import handed, partials_of
from projections.spark.views.stages import Cutting

log = structlog.get_logger()


_SAME = "a view must return the same for the same rows: let an event or a column carry such a value"


def view_columns(spark: SparkSession, group: ProjectionGroup) -> Mapping[str, Mapping[str, ColumnType]]:
    """The columns of every view of the group, by planning its function over empty tables; once a process.

    Partial aggregates are among them, under names that no column of a view has (``projections.declaring.columns``).
    Raises InvalidDefinition, naming the view.
    """
    return _planned(spark, group)[0]


def personal_columns(spark: SparkSession, group: ProjectionGroup) -> Mapping[str, frozenset[str]]:
    """The columns of every view that hold values of a person; the errors of `view_columns`."""
    return _planned(spark, group)[1]


@lru_cache(maxsize=64)
def _planned(spark: SparkSession, group: ProjectionGroup) -> tuple[dict[str, Any], dict[str, frozenset[str]]]:
    columns: dict[str, dict[str, ColumnType]] = {}
    personal: dict[str, frozenset[str]] = {}
    for view in group.all_views:
        for known, plan in _stages(spark, group, view, columns):
            read = {
                name: table.personal if (behind := view_behind(table)) is None else personal[behind.name]
                for name, table in _tables(known).items()
            }
            personal[known.name] = personal_in(plan, read) if any(read.values()) else frozenset()
            if known.within == "all" and not hidden(columns[known.name]):
                log.warning("computes all of its rows whenever one changes", view=view.name, stage=known.name)
    _ = group.resolved(columns).retention  # of a query, nothing was known before
    return columns, personal


def _stages(
    spark: SparkSession, group: ProjectionGroup, view: View, columns: dict[str, dict[str, ColumnType]]
) -> list[tuple[View, Node]]:
    """The view, or its stages if it has to be cut, with their plans; ``columns`` gets the columns of each."""
    if not isinstance(view.declared, Planned):
        return [_stage(spark, group, view, columns)]
    if view.declared.stages and view.declared.session is spark:
        return [_stage(spark, group, stage, columns) for stage in view.declared.stages]
    view.declared.stages = ()
    known = _resolved(group, view, columns)
    with analysed(known.name, known.place):
        result, plan = _analysed(spark, known)
    try:
        _cut(spark, view, known, result, plan)
    except InvalidDefinition:
        if view.key == known.table(known.root).key:
            _require_key(known, _types(known, result))  # which is the cause, then
        raise
    if not view.declared.stages:
        _require_sound(known)
        columns[view.name] = _columns_of(known, result, plan)
        return [(known, plan)]
    try:
        return [_stage(spark, group, stage, columns) for stage in view.stages]
    except InvalidDefinition:
        view.declared.stages = ()
        raise


def _stage(
    spark: SparkSession, group: ProjectionGroup, view: View, columns: dict[str, dict[str, ColumnType]]
) -> tuple[View, Node]:
    known = _resolved(group, view, columns)
    _require_sound(known)
    with analysed(known.name, known.place):
        result, plan = _analysed(spark, known)
    columns[view.name] = _columns_of(known, result, plan)
    return known, plan


def _resolved(group: ProjectionGroup, view: View, columns: Mapping[str, Mapping[str, ColumnType]]) -> View:
    return next(known for known in group.resolved(columns).all_views if known.name == view.name)


def _cut(spark: SparkSession, view: View, known: View, result: DataFrame, first: Node) -> None:
    """Set the references of a query, or its stages; InvalidDefinition."""
    assert isinstance(view.declared, Planned)  # noqa: S101 - the caller looked
    with _untraceable_refused(known), analysed(known.name, known.place):
        require_no_null_answer(first)
        plan = plan_of(normal_form(spark, result))
        cutting = partial(Cutting, spark, known, view.tables, plan, result.columns)
        if known.key == known.table(known.root).key and (found := _references(cutting)) is not None:
            view.declared.references = found
            return
        *before, last = cutting().stages()
        if view.key and last.by:
            last = replace(last, key=view.key)  # proved for rows of one partition, and checked in each batch for all
        elif view.key and set(view.key) != set(last.key):
            raise Untraceable(
                f"the key {', '.join(view.key)}, and not that of its rows",
                f"name the key of its rows: {', '.join(last.key)}",
            )
    view.declared.stages, view.declared.session = (*before, last), spark


def _references(cutting: Callable[..., Cutting]) -> tuple[Reference, ...] | None:
    """The foreign keys of a view that is kept up to date as it is written; None of others."""
    with suppress(Untraceable):
        return cutting(promised=True).references()
    return None


def _analysed(spark: SparkSession, view: View) -> tuple[DataFrame, Node]:
    """The result of a view's function over no rows, and its plan; InvalidDefinition for what no view may do."""
    empty = {name: _no_rows(spark, _ddl(table.opened)) for name, table in _tables(view).items()}
    # New frames from the schemas: what Factfold does to rows before the function is no part of the function's plan.
    frames = zip(view.tables, handed(view, empty), strict=True)
    given = [_no_rows(spark, _marked(frame.schema, name, view.table(name))) for name, frame in frames]
    result = _required(view, view(*given))
    plan = analysed_plan(result)
    _refuse_moments(view, result, plan)
    _refuse_copies(view, plan, given)
    if not isinstance(view.function, StageFunction):  # which merges the sessions itself
        with _untraceable_refused(view):
            require_merged_sessions(plan)
    return result, plan


def _require_sound(view: View) -> None:
    check(view)
    walk(view)


def _columns_of(view: View, result: DataFrame, plan: Node) -> dict[str, ColumnType]:
    schema = result.schema
    own = isinstance(view.function, StageFunction)
    checked_columns([n for n in schema.fieldNames() if not (own and n.startswith(SCOPE))], what="view column")
    columns = _types(view, result)
    if len(columns) != len(schema.fields):
        raise InvalidDefinition(f"view {view.name!r} returns a column name twice", remedy="give each an alias")
    _require_key(view, columns)
    if view.final is not None:
        remedy = "name a timestamp that the view returns, such as window_end"
        require_row_time(view.name, "is final by", view.final.on, columns.get(view.final.on), remedy=remedy)
    if view.reach is not None:
        remedy = "name the timestamp of its rows: reach=Reach('2 hours', on='…')"
        require_row_time(view.name, "reaches from", view.reach.on, columns.get(view.reach.on), remedy=remedy)
    if view.by:
        with _untraceable_refused(view):
            is_proved = require_partitioned(view, plan)
        # What a destroyed key had sealed was another value before the batch, and is not known any more.
        view.near.known = nearness(view, plan) if is_proved and not view.may_be_personal else None
    return columns | partials_of(view, result)


def _types(view: View, result: DataFrame) -> dict[str, ColumnType]:
    return {f.name: column_type(f.dataType, f"{view.name}.{f.name}") for f in result.schema.fields}


@lru_cache(maxsize=256)
def _no_rows(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """An empty frame, which every view with such columns shares: making one takes longer than analysing a query."""
    return spark.createDataFrame([], schema)


def as_written(spark: SparkSession, group: ProjectionGroup, view: View) -> tuple[View, DataFrame]:
    """A view that is not cut into stages, and its result over no rows, whose columns say their roles."""
    columns = view_columns(spark, group)
    known = group.resolved(columns)

    def table(read: AnyTable | View) -> AnyTable:
        return as_table(known.view(read.name), columns[read.name]) if isinstance(read, View) else read

    whole = replace(view, tables={name: table(read) for name, read in view.tables.items()})
    return whole, _analysed(spark, whole)[0]


def _required(view: View, result: object) -> DataFrame:
    if isinstance(result, DataFrame):
        return result
    raise InvalidDefinition(
        f"view {view.name!r} returns {type(result).__name__}, and no DataFrame",
        remedy="return the DataFrame that has the view's rows",
        place=view.place,
    )


def _marked(schema: StructType, name: str, table: AnyTable) -> StructType:
    """The columns of a parameter, each of which says whose it is, wherever a plan takes it; no key is null."""
    present = () if table.key_may_be_null or table.holds_versions else table.key
    return StructType([
        StructField(f.name, f.dataType, f.name not in present, {**f.metadata, ROLE: name}) for f in schema.fields
    ])  # fmt: skip


def _require_key(view: View, columns: Mapping[str, ColumnType]) -> None:
    for key in view.key:
        if key not in columns:
            raise InvalidDefinition(
                f"view {view.name!r} does not return its key {key!r}",
                remedy=f"select it too. Returned are: {', '.join(columns)}",
                place=f"view {view.name}",
                code="unknown-column",
            )
        require_flat(key, columns[key], place=f"view {view.name}")
    for key, declared in _key_types(view).items():
        if may_not_match(columns[key], declared):
            raise InvalidDefinition(
                f"view {view.name!r} returns its key {key!r} as {columns[key].ddl}, and its table as {declared.ddl}",
                remedy="select it as it is there. A column of another name may hold what it is cast to",
                place=f"view {view.name}",
            )


def _key_types(view: View) -> dict[str, ColumnType]:
    """The columns of the view's key, with the types they have in the tables whose rows they name."""
    root = view.table(view.root)
    held = zip(view.root_key, view.root_key_in(view.root), strict=True)
    return {key: root.columns[column] for key, column in held}


def _tables(view: View) -> dict[str, AnyTable]:
    return {name: view.table(name) for name in view.tables}


def _ddl(columns: Mapping[str, ColumnType]) -> str:
    return ", ".join(f"`{name}` {column.ddl}" for name, column in columns.items())


def _refuse_moments(view: View, result: DataFrame, plan: Node) -> None:
    """Refuse what is another value in a rebuild, or in a batch whose plan was made for an earlier one (ADR 0016)."""
    if name := environmental(result, plan):
        raise _refused(view, f"the time of day or another value of the moment: {name}", _SAME)
    if name := nondeterministic(plan):
        raise _refused(view, f"a random value, or one that is another each time: {name}", _SAME)


def _refuse_copies(view: View, plan: Node, given: Sequence[DataFrame]) -> None:
    """Refuse rows made with the schema of a parameter: its marks would make them rows of the parameter's table."""
    ours = {plan_in_jvm(frame).rdd().id() for frame in given}
    for leaf in leaves(plan):
        if leaf.kind in ("CTERelationRef", "UnionLoopRef") or (name := role(leaf)) is None:
            continue
        if leaf.kind != "LogicalRDD" or leaf.jvm.rdd().id() not in ours:
            raise _refused(
                view,
                f"rows made with the schema of its parameter {name!r}",
                "give them a schema of their own, createDataFrame(rows, 'id BIGINT, …'), or write them into a table",
            )


@contextmanager
def _untraceable_refused(view: View) -> Iterator[None]:
    try:
        yield
    except Untraceable as error:
        raise InvalidDefinition(
            f"view {view.name!r} uses {error.what}", remedy=error.remedy, place=f"view {view.name}"
        ) from None


def _refused(view: View, what: str, rule: str) -> InvalidDefinition:
    return InvalidDefinition(
        f"view {view.name!r} uses {what}",
        remedy=rule,
        place=f"view {view.name}",
    )
