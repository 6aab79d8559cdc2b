"""A query cut into stages: views that read each other, each of which a batch keeps up to date by what it reaches.

Spark's optimizer writes a query without subqueries, with its filters near the tables and its joins by what they
compare. That plan is cut below each operator that brings rows together. Joins along references stay whole. Every stage
is a view of one of two kinds: rows of a root, or rows of one partition at a time. Each is then checked as any view is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.views import Input, View
from projections.planning.plans import CONSTANT, SAME_ROWS, Node, attribute_of, role
from projections.planning.rows import Untraceable
from projections.spark.views import catalyst
from projections.spark.views.blocks import (
    LEFT_ALONE,
    Block,
    Join,
    Make,
    Relations,
    Scalars,
    compared,
    first_of,
    is_reached,
    may_order,
    missing,
    renamed,
    scalars,
    with_values,
)
from projections.spark.views.closing import Stages, usable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The optimizer adds some below an operator that says the same.
_SKIPPED: Final = (*SAME_ROWS, "WindowGroupLimit", "LocalLimit")
_BOUNDS: Final = ("GlobalLimit", "LocalLimit", "Offset")
_JOINS: Final = ("INNER", "CROSS", "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", *LEFT_ALONE)


def cut(
    spark: SparkSession, view: View, inputs: Mapping[str, Input], plan: Node, names: Sequence[str]
) -> tuple[View, ...]:
    """The stages of a view, each after those that it reads; the last is the view itself, with columns of these names.

    ``inputs`` are its tables and views as they were declared. Untraceable for an operator of which no stage is made.
    """
    return _Cutting(spark, view, inputs, plan, names).stages()


class _Cutting:
    def __init__(
        self, spark: SparkSession, view: View, inputs: Mapping[str, Input], plan: Node, names: Sequence[str]
    ) -> None:
        self._spark = spark
        self._view, self._inputs, self._plan = view, inputs, plan
        self._final = list(zip(map(usable, names), plan.output, strict=True))
        if len({name.lower() for name, _ in self._final}) < len(self._final):
            raise Untraceable("a column name twice", "give each column a name of its own")
        self._stages = Stages(spark, view.name, plan, inputs)
        self._read: set[str] = set()  # the parameters that are

    def stages(self) -> tuple[View, ...]:
        self._stages.close(self._block(self._plan), dict(self._final), self._view.name)
        *before, last = self._stages.closed
        unread = [name for name in self._inputs if name not in self._read]
        if unread and self._view.key:  # a function: what a query names may follow from nothing in it
            raise Untraceable(f"the parameter {unread[0]!r}, which it does not read", "leave the parameter out")
        view = self._view
        last = replace(last, topic=view.topic, lake=view.lake, final=view.final, reach=view.reach, windows=view.windows)
        return (*before, last)

    # ---- operators

    def _block(self, node: Node) -> Block:
        _require_no_other_subquery(node)
        match node.kind:
            case _ if not node.children:
                return self._leaf(node)
            case "Project":
                return self._projected(node)
            case "Filter":
                return self._filtered(node)
            case "Join":
                return self._joined(node)
            case "Aggregate":
                return self._aggregated(node)
            case "Window":
                return self._windowed(node)
            case "Union":
                return self._united(node)
            case "GlobalLimit" | "Offset":
                return self._limited(node)
            case "Expand":
                return self._repeated(node)
            case "Generate":
                return self._generated(node)
            case kind if kind in _SKIPPED:
                return self._block(node.children[0])
        raise Untraceable(
            f"{node.kind}, of which no stage is made", "select, filter, join, group, or number rows within a partition"
        )

    def _leaf(self, node: Node) -> Block:
        name = role(node) if node.kind == "LogicalRDD" else None  # no rows at all have the marks of a table, too
        if name is None:
            if node.kind in CONSTANT:
                return Block(lambda spark, relations: node.jvm, node.output, {})
            raise Untraceable(f"{node.kind}, rows that no parameter of it has", "declare them as a table")
        place = self._stages.free(f"{name}_{number}" for number in count(2)) if name in self._read else name
        self._read.add(name)
        table = self._view.table(name)
        if table.holds_versions:
            raise Untraceable(
                "a join with the versions of a table that is not by their key and time",
                f"join them by join_versions(stream, {name}, on='the foreign key'), to rows of the stream alone",
            )
        columns = {a.name: a for a in node.output}
        if not set(table.key) <= set(columns):
            raise Untraceable(f"rows of {name!r} without their key", f"select {', '.join(table.key)}")
        key = tuple(columns[column] for column in table.key)
        return self._stages.read(place, self._inputs[name], columns.items(), key)

    def _projected(self, node: Node) -> Block:
        return self._selected(node, *self._with_scalars(node))

    def _selected(self, node: Node, below: Block, subqueries: Scalars) -> Block:
        listed = node.all("projectList")
        key = renamed(listed, node.output, below.key, below.first)
        scope = None if below.scope is None else renamed(listed, node.output, below.scope, below.first)
        kept = missing((*key, *(scope or ())), listed)
        first = [first_of(one.bare, below.first) for one in listed]
        selected = [
            one.jvm if found is None else catalyst.instead(self._spark, one.jvm, found.jvm)
            for one, found in zip(listed, first, strict=True)
        ]

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            named = [subqueries.filled(spark, one, plan) for one in selected]
            return catalyst.projection(spark, [*named, *(a.jvm for a in kept)], plan)

        named = {one.id: one.bare for one in (*listed, *kept)}
        direct = {id: below.direct[a.id] for id, a in named.items() if a.is_attribute and a.id in below.direct}
        output = (*node.output, *kept)
        firsts = renamed(listed, node.output, below.first.values(), below.first)
        known = dict(zip(below.first, firsts, strict=True))
        return replace(below, make=make, output=output, key=key, scope=scope, direct=direct, first=known)

    def _filtered(self, node: Node) -> Block:
        below, subqueries = self._with_scalars(node)

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            return catalyst.filtering(spark, subqueries.filled(spark, node.one("condition").jvm, plan), plan)

        return replace(below, make=make)

    # ---- rows brought together

    def _joined(self, node: Node) -> Block:
        left, right = (self._block(node.one(side)) for side in ("left", "right"))
        join = compared(self._spark, node, left, right)
        if not left.inputs or not right.inputs:
            return self._with_values(join)
        return self._answered(join) if node.how == "EXISTENCE" else self._met(join)

    def _answered(self, join: Join) -> Block:
        """Rows with the answer whether any row of the other side compares equal."""
        if join.others or not join.pairs:
            raise Untraceable(
                "EXISTS by an inequality, or by no column of the row, as a value or in OR",
                "write it in WHERE, or a view for each part of the OR",
            )
        right = join.right
        if not is_reached(right, join.theirs):
            right = self._existing(right, [b for _, b in join.pairs])
        right, (found,) = with_values(right, [catalyst.truth(self._spark)])
        output = (*join.left.output, *right.output)
        rows = self._met(replace(join, how="LEFT OUTER", right=right, output=output))
        return with_values(rows, [catalyst.is_found(self._spark, found.jvm, join.output[-1].jvm)])[0]

    def _met(self, join: Join) -> Block:
        if join.how == "LEFT SINGLE" and is_reached(join.right, join.theirs):
            join = replace(join, how="LEFT OUTER")
        if join.how not in _JOINS:
            raise Untraceable(f"a {join.how} JOIN, as of a subquery of several rows", "let it return an aggregate")
        if join.how in LEFT_ALONE and not is_reached(join.right, join.theirs) and not join.alike and not join.others:
            join = replace(join, right=self._existing(join.right, join.theirs))
        join = self._with_one_row(join)
        if root := _root(join):
            ours, theirs = join.referring
            left = self._stages.settled(join.left, ours if root == "left" else ())
            right = self._stages.settled(join.right, theirs if root == "right" else ())
            return self._rooted(replace(join, left=left, right=right), left if root == "left" else right)
        return self._paired(join)

    def _with_values(self, join: Join) -> Block:
        """A join with rows of no table: of each row of the other side on its own, by their places."""
        rows, values = (join.left, join.right) if join.left.inputs else (join.right, join.left)
        outer = "LEFT OUTER" if rows is join.left else "RIGHT OUTER"
        if join.how not in ("INNER", "CROSS", outer, *LEFT_ALONE) or not rows.inputs:
            raise Untraceable("a join that keeps rows of no table", "keep the rows of the tables, and join the others")
        if join.how in LEFT_ALONE:
            return replace(rows, make=join.make())
        below = self._row_by_row(rows)
        join = replace(join, left=below, right=values) if rows is join.left else replace(join, left=values, right=below)
        output = (*join.output, *missing((*below.key, *values.key), join.output))
        return replace(below, make=join.make(), output=output, key=values.key, scope=below.key, of_rows=True)

    def _with_one_row(self, join: Join) -> Join:
        """A join by the value that all rows share, if a side is the one row that is made of all."""
        left, right, stages = join.left, join.right, self._stages
        if right.is_one_row and join.how in ("INNER", "CROSS", "LEFT OUTER"):
            left, right = stages.parted(left, ()), stages.settled(right)
        elif left.is_one_row and join.how in ("INNER", "CROSS", "RIGHT OUTER"):
            left, right = stages.settled(left), stages.parted(right, ())
        else:
            return join
        return replace(join, left=left, right=right, equal=((left.shared, right.shared), *join.equal))

    def _rooted(self, join: Join, root: Block) -> Block:
        inputs = {name: table for one in (root, join.left, join.right) for name, table in one.inputs.items()}
        direct = {**join.left.direct, **join.right.direct}
        return Block(join.make(), (*join.output, *missing(root.key, join.output)), inputs, root.key, direct=direct)

    def _paired(self, join: Join) -> Block:
        """A join of several rows with several: of one partition of both sides at a time, by what it compares."""
        pairs = self._stages.different_pairs(join.pairs)
        join = replace(
            join,
            left=self._stages.met(join.left, [a for a, _ in pairs]),
            right=self._stages.met(join.right, [b for _, b in pairs]),
        )
        left, right = join.left, join.right
        joins = bool(join.pairs)
        pairs = pairs or [(left.shared, right.shared)]
        key = left.key if join.how in LEFT_ALONE else (*left.key, *right.key)
        if join.how == "FULL OUTER" and not left.present and not right.present:  # a key of nulls may be of either
            left, found = with_values(left, [catalyst.truth(self._spark)])
            join, key = replace(join, left=left), (*key, *found)
        inputs, parts = {**left.inputs, **right.inputs}, {**left.parts, **right.parts}
        if join.how == "FULL OUTER":
            output = (*join.output, *missing((*key, *(a for pair in pairs for a in pair)), join.output))
            rows = Block(join.make(), output, inputs, key, parts=parts, joins=joins)
            both = catalyst.either(self._spark, [(a.jvm, b.jvm) for a, b in pairs])
            rows = self._stages.with_scope(rows, both, of_all=not joins)
            scope = rows.scope or ()
            first = {left.parts_of(a) | right.parts_of(b): one for one, (a, b) in zip(scope, pairs, strict=True)}
            first |= {frozenset({a.id, b.id}): one for one, (a, b) in zip(scope, pairs, strict=True)}
            is_one = joins and left.present and right.present and _are_one(join)
            return replace(rows, single=is_one, present=is_one, first=first)
        scope = tuple(b if join.how == "RIGHT OUTER" else a for a, b in pairs)
        output = (*join.output, *missing((*key, *scope), join.output))
        all_rows = None if joins else scope[0]
        return Block(join.make(), output, inputs, key, scope, parts=parts, all_rows=all_rows, joins=joins)

    def _existing(self, block: Block, by: Sequence[Node]) -> Block:
        """The different values of some attributes, as a stage."""
        by = self._stages.different(by)
        below = self._stages.within(block, by, needed=[])

        def make(spark: SparkSession, relations: Relations) -> Any:
            return catalyst.distinct(spark, [a.jvm for a in by], below.make(spark, relations))

        return self._stages.stage(self._groups(make, by, below, by))

    def _aggregated(self, node: Node) -> Block:
        by = node.all("groupingExpressions")
        if not all(one.is_attribute for one in by):
            raise Untraceable("a group by an expression", "select it in a subquery, and group by its name")
        different = self._stages.different(by)
        below = self._stages.within(
            self._block(node.children[0]), different, needed=(*by, *node.all("aggregateExpressions"))
        )
        returned = renamed(node.all("aggregateExpressions"), node.output, different)
        further = missing(returned, node.output)

        def make(spark: SparkSession, relations: Relations) -> Any:
            rows = below.make(spark, relations)
            return catalyst.aggregation(spark, node.jvm, [a.jvm for a in further], rows)

        return self._groups(make, (*node.output, *further), below, returned)

    def _groups(self, make: Make, output: Sequence[Node], below: Block, by: Sequence[Node]) -> Block:
        """A row for each group of a partition's rows; what it is grouped by has the columns of the partition."""
        scope = {self._stages.source(a) for a in below.scope or ()}
        key = tuple(a for a in by if self._stages.source(a) not in scope)
        groups = Block(make, tuple(output), below.inputs, key, parts=below.parts, of_rows=below.of_rows)
        if below.is_of_all:
            return self._stages.with_scope(groups, [catalyst.shared_value(self._spark)], of_all=True)
        named = {self._stages.source(a): a for a in by}
        return replace(groups, scope=tuple(named[self._stages.source(a)] for a in below.scope or ()))

    def _windowed(self, node: Node) -> Block:
        by = node.all("partitionSpec")
        if not all(one.is_attribute for one in by):
            raise Untraceable("a window by an expression", "select it in a subquery, and partition by its name")
        different = self._stages.different(by)
        below = self._stages.within(self._block(node.children[0]), different)

        def make(spark: SparkSession, relations: Relations) -> Any:
            rows = below.make(spark, relations)
            return catalyst.window(spark, node.jvm, [a.jvm for a in below.key] if may_order(node) else [], rows)

        output = (*below.output, *missing(node.output, below.output))
        return replace(below, make=make, output=output, direct={})

    def _limited(self, node: Node) -> Block:
        """The first rows of all. What is selected of them may leave out what they are ordered by."""
        top, bounds = node, list[Node]()
        while top.kind in _BOUNDS:
            bounds.append(top)
            top = top.children[0]
        rows, selected = top, list[Node]()
        while rows.kind == "Project" and not list(rows.subqueries):
            selected.append(rows)
            rows = rows.children[0]
        if rows.kind != "Sort":
            rows, selected = top, []
            if _is_ordered(top):
                raise Untraceable("a limit of rows that a subquery orders", "write ORDER BY where LIMIT is")
        order = rows.all("order") if rows.kind == "Sort" else ()
        below = self._stages.within(self._block(rows), ())

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            ordered = catalyst.in_order(spark, plan, [one.jvm for one in order], [a.jvm for a in below.key])
            return catalyst.bounded(spark, ordered, [one.jvm for one in reversed(bounds)])

        block = replace(below, make=make, direct={})
        for project in reversed(selected):
            block = self._selected(project, block, Scalars({}))
        return block

    def _united(self, node: Node) -> Block:
        """Rows of several stages, each known by its part of the union and by its key there."""
        blocks = [self._stages.settled(self._block(child)) for child in node.children]
        width = max(len(block.key) for block in blocks)
        parts, key = list[Block](), list[tuple[Node, ...]]()
        for place, (block, child) in enumerate(zip(blocks, node.children, strict=True)):
            if any(a.type == "binary" for a in block.key):
                raise Untraceable("a union of rows whose key is binary", "write a view for each part")
            named = catalyst.row_key(self._spark, place, [a.jvm for a in block.key], width)
            own, made = with_values(block, named, child.output)
            key.append(made)
            parts.append(self._stages.parted(own, made[1:]))

        def union(spark: SparkSession, relations: Relations) -> Any:
            chosen = zip(parts, node.children, key, strict=True)
            rows = [
                catalyst.projection(spark, [a.jvm for a in (*child.output, *of)], part.make(spark, relations))
                for part, child, of in chosen
            ]
            return node.jvm.withNewChildren(catalyst.sequence(spark, rows))

        inputs = {name: table for part in parts for name, table in part.inputs.items()}
        by = {name: columns for part in parts for name, columns in part.parts.items()}
        output, (number, *of_row) = (*node.output, *key[0]), key[0]
        return Block(union, output, inputs, (number,), tuple(of_row), parts=by, of_rows=True)

    # ---- several rows of one

    def _repeated(self, node: Node) -> Block:
        """Rows that are there once for each of several groupings, or for each window that they are in."""
        below = self._row_by_row(self._block(node.children[0]))
        output = (*node.output, *missing(below.key, node.output))
        number = attribute_of(catalyst.number(self._spark))

        def make(spark: SparkSession, relations: Relations) -> Any:
            kept = [a.jvm for a in output[len(node.output) :]]
            names = [a.jvm for a in (*output, number)]
            return catalyst.repeated(spark, node.jvm, names, kept, below.make(spark, relations))

        return replace(below, make=make, output=(*output, number), key=(number,), scope=below.key, of_rows=True)

    def _generated(self, node: Node) -> Block:
        """A row for each item of a list or of a map, by the place of the item."""
        generator = node.one("generator")
        if generator.kind not in catalyst.LISTING:
            raise Untraceable(f"{generator.kind}, whose rows have no number", "use explode, posexplode or inline")
        rows, given = self._block(node.children[0]), node.all("generatorOutput")
        below = self._row_by_row(rows) if rows.inputs else rows
        place = given[0] if generator.kind == "PosExplode" else attribute_of(catalyst.number(self._spark))

        def make(spark: SparkSession, relations: Relations) -> Any:
            return catalyst.listed(spark, node.jvm, place.jvm, below.make(spark, relations))

        output = tuple({a.id: a for a in (*below.output, *given, place)}.values())
        if not below.inputs:
            return replace(below, make=make, output=output, key=(*below.key, place))
        return replace(below, make=make, output=output, key=(place,), scope=below.key, of_rows=True)

    def _row_by_row(self, block: Block) -> Block:
        """Rows, each of which is a partition of its own."""
        block = self._stages.settled(block)
        return self._stages.parted(block if len(block.inputs) == 1 else self._stages.stage(block), block.key)

    # ---- subqueries of one value

    def _with_scalars(self, node: Node) -> tuple[Block, Scalars]:
        """The rows below an operator, joined with the one row of each subquery in its expressions."""
        below = self._block(node.children[0])
        found = [one for expression in node.expressions for one in scalars(expression)]
        if not found:
            return below, Scalars({})
        stages = [(one, self._stages.stage(self._block(one.one("plan")))) for one in found]
        if any(one.all("outerAttrs") or not stage.is_one_row for one, stage in stages):
            raise Untraceable("a subquery that may return several rows", "let it return an aggregate without GROUP BY")
        looked_up = [stage for _, stage in stages]
        of_values = node.children[0].kind == "OneRowRelation"
        rows = looked_up.pop(0) if of_values else self._stages.parted(below, ())

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = rows.make(spark, relations)
            for stage in looked_up:
                value = stage.make(spark, relations)
                plan = catalyst.joined(spark, "LEFT OUTER", [plan, value], [(rows.shared.jvm, stage.shared.jvm)])
            return plan

        inputs = {**rows.inputs, **{n: t for _, stage in stages for n, t in stage.inputs.items()}}
        joined = replace(rows, make=make, inputs=inputs, direct={})
        return joined, Scalars({one.id: stage.output[0].id for one, stage in stages})


def _root(join: Join) -> str | None:
    """The side of which a joined row has one row."""
    if join.how in ("INNER", "CROSS", "LEFT OUTER", *LEFT_ALONE) and join.leads_right:
        return "left"
    if join.how in ("INNER", "CROSS", "RIGHT OUTER") and is_reached(join.left, join.ours):
        return "right"
    return None


def _are_one(join: Join) -> bool:
    """Whether a row meets one row of the other side at most, and the other way round."""
    return is_reached(join.left, [a for a, _ in join.pairs]) and is_reached(join.right, [b for _, b in join.pairs])


def _is_ordered(node: Node) -> bool:
    """Whether rows come in an order that what selects them does not say."""
    while node.kind in ("Project", "Filter", "SubqueryAlias"):
        node = node.children[0]
    return node.kind == "Sort"


def _require_no_other_subquery(node: Node) -> None:
    """Refuse a subquery that is no value of a selection: the optimizer has made joins of most."""
    joined = [one for e in node.expressions for one in scalars(e)] if node.kind in ("Project", "Filter") else []
    if len(list(node.subqueries)) > len(joined):
        raise Untraceable("a subquery in a group, a join or an order", "write it in SELECT or WHERE, or join it")
