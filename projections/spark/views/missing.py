"""Why a view lacks a row: the operators of its plan from the last to the first, until one lost the row.

A row is looked for by conditions on an operator's columns: at first that the view's key has its values. Below an
operator they become conditions on what it computed these columns from. Below a join, those on the other side are what
the rows of the first side ask for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession

from eventstore.delivery.source import MASK
from projections.declaring.views import View
from projections.planning.plans import plan_in_jvm, plan_of, role
from projections.planning.refusals import Untraceable
from projections.spark.scala import items
from projections.spark.views.catalyst import (
    classes,
    filtering,
    frame_of,
    is_attribute,
    kind_of,
    projection,
    relation,
    replaced,
    rewritten,
    selection,
    under,
)
from projections.spark.views.normal_form import normal_form
from projections.spark.views.partials import handed

Step = Literal["filter", "join", "anti join", "deleted", "no row", "other"]
_SHOWN: Final = 3
# What Spark writes to give a value or a column its type, which says nothing here.
_CAST: Final = re.compile(r"CAST\(('[^']*'|[\w.`]+) AS [A-Z]+(?:\([\d, ]+\))?\)")
_LONG: Final = re.compile(r"\b(\d+)L\b")
DELETED: Final = "_deleted"
TABLE: Final = "table of "
VIEW: Final = "view "


@dataclass(frozen=True)
class Dropped:
    """An operator that lost the row that was looked for.

    Attributes:
        place: The view or the table of which the operator is.
        step: What it does.
        condition: The conditions that do not hold, or by which a row was looked for, as Spark writes them.
        values: Some rows before it, with the columns that the conditions read.

    Examples:
        >>> [found] = why_missing(environment, shop_views, "open_orders", {"order_id": "o7"})
        >>> found.step, found.condition
        ('filter', "(status = 'open')")
    """

    place: str
    step: Step
    condition: str
    values: tuple[Mapping[str, Any], ...] = ()


def over_rows(spark: SparkSession, view: View, result: DataFrame, rows: Mapping[str, DataFrame]) -> Any:
    """The plan of a view's function over the rows of its tables, from its ``result`` over no rows."""
    frames = dict(zip(view.tables, handed(view, rows), strict=True))

    def filled(node: Any) -> Any:
        if not node.children().isEmpty():
            # It only spares work for a filter above it.
            return node.child() if node.nodeName() == "WindowGroupLimit" else node
        leaf = plan_of(node)
        name = role(leaf)
        return node if name is None else relation(spark, frames[name], [(a.name, a) for a in leaf.output])

    try:
        normal = normal_form(spark, result)
    except Untraceable:  # of what no stage is made
        normal = plan_in_jvm(result)
    plan = rewritten(spark, normal, filled)
    columns = zip(result.columns, plan_of(plan).output, strict=True)
    return plan_in_jvm(selection(spark, plan, list(columns)))


def named_rows(spark: SparkSession, plan: Any, name: str) -> DataFrame:
    """The rows of a plan under a name, which is the place of what is lost below it."""
    return frame_of(spark, plan).alias(name)


def dropped(
    spark: SparkSession, plan: Any, key: Mapping[str, Any], place: str, plain: Mapping[str, Collection[str]] | None
) -> list[Dropped]:
    """The operators that lost the row of a key, from the last to the first; none if the plan has the row.

    ``plain`` has, by the place of each table, its columns without values of persons. All else is masked. With None,
    nothing is.
    """
    search = _Search(spark, plain)
    columns = {str(one.name()): one for one in items(plan.output())}
    wanted = [search.same(columns[name], value) for name, value in key.items()]
    return [] if search.rows(plan, wanted) else list(search.lost(plan, wanted, place))


@dataclass(frozen=True)
class _Search:
    spark: SparkSession
    plain: Mapping[str, Collection[str]] | None

    def same(self, attribute: Any, value: Any) -> Any:
        """That an attribute has a value, null for null."""
        return classes(self.spark).alike(attribute, self._literal(value, attribute.dataType()))

    def _literal(self, value: Any, kind: Any) -> Any:
        """A value, or its text, as one of a type."""
        own = classes(self.spark)
        if value is None:
            return own.literal.create(None, kind)
        return own.cast.apply(own.literal.apply(str(value)), kind, own.some("UTC"), True)

    def lost(self, plan: Any, wanted: Sequence[Any], place: str) -> Iterator[Dropped]:
        """Where a row was lost that no row of a plan is."""
        name, below = str(plan.nodeName()), items(plan.children())
        if name == "SubqueryAlias" and str(plan.alias()).startswith((TABLE, VIEW)):
            yield from self.lost(below[0], self._below(plan, below[0], wanted), str(plan.alias()))
        elif not below:
            yield self._dropped(place, "no row", wanted, [plan])
        elif name == "Union":
            for part in below:
                yield from self._of_child(plan, part, _by_place(self.spark, plan, part, wanted), place)
        elif name == "Join":
            yield from self._of_join(plan, below, wanted, place)
        else:
            yield from self._of_child(plan, below[0], self._below(plan, below[0], wanted), place)

    def _of_child(self, plan: Any, child: Any, wanted: Sequence[Any], place: str) -> Iterator[Dropped]:
        if not self.rows(child, wanted):
            yield from self.lost(child, wanted, place)
        elif str(plan.nodeName()) == "Filter":
            yield self._filtered(plan, child, wanted, place)
        else:
            yield Dropped(place, "other", str(plan.nodeName()))

    def _filtered(self, plan: Any, child: Any, wanted: Sequence[Any], place: str) -> Dropped:
        parts = _parts(plan.condition())
        failed = [one for one in parts if not self.rows(child, [*wanted, one])] or parts
        read = _references(failed)
        step: Step = "deleted" if {str(one.name()) for one in read} == {DELETED} else "filter"
        shown = items(child.output()) if step == "deleted" else read
        return self._dropped(place, step, failed, [child], self._values(child, wanted, shown, place))

    def _of_join(self, join: Any, sides: Sequence[Any], wanted: Sequence[Any], place: str) -> Iterator[Dropped]:
        how = str(join.joinType().sql())
        parts = _parts(join.condition().get()) if join.condition().isDefined() else []
        first, other = reversed(sides) if how == "RIGHT OUTER" else sides
        own = [one for one in wanted if _is_of(one, first)]
        if not self.rows(first, own):
            yield from self.lost(first, own, place)
            if how != "FULL OUTER":
                return
        values = self._values(first, own, _references(parts), place)
        if how == "LEFT ANTI":
            yield self._dropped(place, "anti join", parts, sides, values)
            return
        asked = [one for one in wanted if _is_of(one, other)]
        if asked and not self.rows(other, asked):
            yield from self.lost(other, asked, place)
            return
        equal = [] if asked else list(self._asked(parts, first, other, own))
        found = self._values(other, [*asked, *equal], _references(parts), place)
        yield self._dropped(place, "join", parts, sides, (*values, *found))
        if equal and not found:
            yield from self.lost(other, equal, place)

    def _asked(self, parts: Sequence[Any], first: Any, other: Any, wanted: Sequence[Any]) -> Iterator[Any]:
        """What a row of the other side must have to equal a row of the first: of one row, as others ask the same."""
        for left, right in filter(None, (_equal(part, first, other) for part in parts)):
            found = self._selected(first, wanted, [left]).limit(1).collect()
            if found and found[0][0] is not None:
                yield self._is(right, found[0][0])

    def _is(self, expression: Any, value: Any) -> Any:
        """That an expression equals a value; of null, nothing does."""
        return classes(self.spark).equal(expression, self._literal(value, expression.dataType()))

    def _below(self, plan: Any, child: Any, wanted: Sequence[Any]) -> list[Any]:
        """The conditions on an operator's columns as those on the columns that it makes them of, as far as it does."""
        made = {one.exprId().id(): one.child() for one in _computed(plan) if kind_of(one) == "Alias"}
        found = [replaced(self.spark, one, made) for one in wanted]
        return [one for one in found if _is_of(one, child) and not _aggregates(one)]

    def rows(self, plan: Any, wanted: Sequence[Any]) -> bool:
        """Whether a plan has a row that meets the conditions."""
        return bool(frame_of(self.spark, self._filter(plan, wanted)).limit(1).count())

    def _filter(self, plan: Any, wanted: Sequence[Any]) -> Any:
        return filtering(self.spark, reduce(classes(self.spark).both, wanted), plan) if wanted else plan

    def _selected(self, plan: Any, wanted: Sequence[Any], expressions: Sequence[Any]) -> DataFrame:
        named = [under(self.spark, one, f"c{number}") for number, one in enumerate(expressions)]
        return frame_of(self.spark, projection(self.spark, named, self._filter(plan, wanted)))

    def _values(
        self, plan: Any, wanted: Sequence[Any], read: Sequence[Any], place: str
    ) -> tuple[Mapping[str, Any], ...]:
        """Some rows with those of the columns that are its own."""
        ids = {one.exprId().id() for one in read}
        columns = [one for one in items(plan.output()) if one.exprId().id() in ids]
        rows = self._selected(plan, wanted, columns).distinct().limit(_SHOWN).collect() if columns else []
        names = [str(one.name()) for one in columns]
        shown = self._shown(columns, [plan], place)
        masked = ([value if one in shown else MASK for one, value in zip(columns, row, strict=True)] for row in rows)
        return tuple(dict(zip(names, row, strict=True)) for row in masked)

    def _dropped(
        self,
        place: str,
        step: Step,
        conditions: Sequence[Any],
        plans: Sequence[Any],
        values: tuple[Mapping[str, Any], ...] = (),
    ) -> Dropped:
        read = _references(conditions)
        if len(self._shown(read, plans, place)) < len(read):
            return Dropped(place, step, MASK, values)
        said = " AND ".join(str(one.sql()) for one in conditions).replace("<=>", "=") or "any row"
        return Dropped(place, step, _LONG.sub(r"\1", _CAST.sub(r"\1", said)), values)

    def _shown(self, attributes: Sequence[Any], plans: Sequence[Any], place: str) -> list[Any]:
        """Those of some attributes that are columns of tables as they are, and without values of persons."""
        if self.plain is None:
            return list(attributes)
        if place in self.plain:
            return [one for one in attributes if _is_plain(one, self.plain[place])]
        known = set[int]().union(*map(self._plain_of, plans))
        return [one for one in attributes if one.exprId().id() in known]

    def _plain_of(self, plan: Any) -> set[int]:
        """The ids of such attributes in a plan's rows."""
        name, below = str(plan.nodeName()), items(plan.children())
        if name == "SubqueryAlias" and (columns := (self.plain or {}).get(str(plan.alias()))) is not None:
            return {one.exprId().id() for one in items(plan.output()) if _is_plain(one, columns)}
        parts = [self._plain_of(child) for child in below]
        if name == "Union":
            columns_of = zip(*(_ids(items(child.output())) for child in below), strict=True)
            plain = [all(id in part for id, part in zip(ids, parts, strict=True)) for ids in columns_of]
            return {id for id, is_plain in zip(_ids(items(plan.output())), plain, strict=True) if is_plain}
        known = set[int]().union(*parts)
        same = ((one, one.child()) for one in _computed(plan) if kind_of(one) == "Alias")
        return known | {one.exprId().id() for one, of in same if is_attribute(of) and of.exprId().id() in known}


def _ids(attributes: Sequence[Any]) -> list[int]:
    return [one.exprId().id() for one in attributes]


def _is_plain(attribute: Any, columns: Collection[str]) -> bool:
    return str(attribute.name()) in columns or str(attribute.name()).startswith("_")


def _computed(plan: Any) -> list[Any]:
    """What an operator computes under names."""
    lists = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
    return items(getattr(plan, lists[str(plan.nodeName())])()) if str(plan.nodeName()) in lists else []


def _parts(condition: Any) -> list[Any]:
    if kind_of(condition) == "And":
        return [part for side in items(condition.children()) for part in _parts(side)]
    return [condition]


def _attributes(expression: Any) -> list[Any]:
    return [expression] if is_attribute(expression) else _references(items(expression.children()))


def _references(expressions: Sequence[Any]) -> list[Any]:
    return [attribute for one in expressions for attribute in _attributes(one)]


def _is_of(expression: Any, plan: Any) -> bool:
    return bool(expression.references().subsetOf(plan.outputSet()))


def _aggregates(expression: Any) -> bool:
    return kind_of(expression) == "AggregateExpression" or any(map(_aggregates, items(expression.children())))


def _equal(part: Any, first: Any, other: Any) -> tuple[Any, Any] | None:
    """Both sides of an equality, that of the first plan before that of the other."""
    if kind_of(part) not in ("EqualTo", "EqualNullSafe"):
        return None
    left, right = items(part.children())
    for one, two in ((left, right), (right, left)):
        if _is_of(one, first) and _is_of(two, other):
            return one, two
    return None


def _by_place(spark: SparkSession, union: Any, part: Any, wanted: Sequence[Any]) -> list[Any]:
    """Conditions on the columns of a union as those on the columns of a part, which have the same places."""
    held = {a.exprId().id(): b for a, b in zip(items(union.output()), items(part.output()), strict=True)}
    return [replaced(spark, one, held) for one in wanted]
