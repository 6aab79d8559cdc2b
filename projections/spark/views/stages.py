"""A query cut into stages: views that read each other, each of which a batch keeps up to date by what it reaches.

Spark's optimizer writes a query without subqueries, with its filters near the tables and its joins by what they
compare. That plan is cut below each operator that brings rows together. Joins along references stay whole. Every stage
is a view of one of two kinds: rows of a root, or rows of one partition at a time. The second are then checked as any
view of partitions is. A query of one stage along its own tables is left as it is written: only its references are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.views import Input, Reference, View
from projections.errors import InvalidDefinition
from projections.planning.expressions import conditions
from projections.planning.planner import plan as walk
from projections.planning.plans import CONSTANT, SAME_ROWS, Node, attribute_of, role
from projections.planning.refusals import Untraceable
from projections.spark.views import catalyst
from projections.spark.views.blocks import (
    BOTH,
    LEFT_ALONE,
    Block,
    Join,
    Make,
    Pair,
    Relations,
    Scalars,
    compared,
    first_of,
    is_ordered,
    links,
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
_JOINS: Final = (*BOTH, "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", *LEFT_ALONE)


class Cutting:
    """A view's plan, cut into stages. ``inputs`` are its tables and views as declared, ``names`` those of its columns.

    Raises Untraceable for an operator of which no stage is made.
    """

    def __init__(
        self,
        spark: SparkSession,
        view: View,
        inputs: Mapping[str, Input],
        plan: Node,
        names: Sequence[str],
        *,
        promised: bool = False,
    ) -> None:
        """With ``promised``, a row of the root is there once, which each batch checks."""
        self._spark, self._promised = spark, promised
        self._view, self._inputs, self._plan = view, inputs, plan
        self._final = list(zip(map(usable, names), plan.output, strict=True))
        if len({name.lower() for name, _ in self._final}) < len(self._final):
            raise Untraceable("a column name twice", "give each column a name of its own")
        self._stages = Stages(spark, view.name, plan, inputs)
        self._read: dict[str, str] = {}  # what reads parameters, by its name in a stage

    def references(self) -> tuple[Reference, ...] | None:
        """The foreign keys along which the rows of the view's root reach all others; None if they need stages."""
        block, view = self._block(self._plan), self._view
        if block.scope is not None or self._stages.closed or {*self._read.values()} != {*view.tables}:
            return None
        pairs = zip(map(dict(self._final).get, view.key), block.root_key, strict=True)
        if self._read[block.root_key[0][0]] != view.root or not all(a and block.is_column(a, own) for a, own in pairs):
            return None
        renamed = (replace(r, source=self._read[r.source], target=self._read[r.target]) for r in block.references)
        own = [r for r in renamed if r != Reference(r.source, view.table(r.target).key, r.source)]
        with suppress(InvalidDefinition):  # they form a cycle: rows of the same table, which a stage takes as two
            return walk(replace(view, declared=tuple(dict.fromkeys(own)))).view.references
        return None

    def stages(self) -> tuple[View, ...]:
        """The stages, each after those that it reads; the last is the view itself."""
        self._stages.close(self._block(self._plan), dict(self._final), self._view.name)
        *before, last = self._stages.closed
        unread = [name for name in self._inputs if name not in self._read.values()]
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
        self._read[place] = name
        table = self._view.table(name)
        if table.holds_versions and not self._promised:
            raise Untraceable(
                "a join with the versions of a table that is not by their key and time",
                f"join them by join_versions(stream, {name}, on='the foreign key'), to rows of the stream alone",
            )
        columns = {a.name: a for a in node.output}
        if not set(table.key) <= set(columns):
            raise Untraceable(f"rows of {name!r} without their key", f"select {', '.join(table.key)}")
        key = tuple(columns[column] for column in table.key)
        rows = self._stages.read(place, self._inputs[name], columns.items(), key)
        return replace(rows, root_key=((place, "_valid.key"),)) if table.holds_versions else rows

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

        named = {one.id: one.bare for one in listed if one.kind == "Alias"}
        direct = {id: below.direct[a.id] for id, a in named.items() if a.is_attribute and a.id in below.direct}
        computed = {**below.computed, **{id: one for id, one in named.items() if id not in direct}}
        output = (*node.output, *kept)
        firsts = renamed(listed, node.output, below.first.values(), below.first)
        known = dict(zip(below.first, firsts, strict=True))
        return replace(
            below, make=make, output=output, key=key, scope=scope, direct={**below.direct, **direct}, computed=computed,
            first=known,
        )  # fmt: skip

    def _filtered(self, node: Node) -> Block:
        below, subqueries = self._with_scalars(node)

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            return catalyst.filtering(spark, subqueries.filled(spark, node.one("condition").jvm, plan), plan)

        looked_at = (a for part in conditions(node) if part.kind == "IsNotNull" for a in part.children)
        return replace(below, make=make, filled=below.filled.union(a.id for a in looked_at if a.is_attribute))

    # ---- rows brought together

    def _joined(self, node: Node) -> Block:
        left, right = (self._block(node.one(side)) for side in ("left", "right"))
        join = replace(compared(self._spark, node, left, right), promised=self._promised)
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
        if not join.finds_one:
            right = self._existing(right, [b for _, b in join.pairs])
        right, (found,) = with_values(right, [catalyst.truth(self._spark)])
        output = (*join.left.output, *right.output)
        rows = self._met(replace(join, how="LEFT OUTER", right=right, output=output))
        return with_values(rows, [catalyst.is_found(self._spark, found.jvm, join.output[-1].jvm)])[0]

    def _met(self, join: Join) -> Block:
        if join.how == "LEFT SINGLE" and join.finds_one:
            join = replace(join, how="LEFT OUTER")
        if join.how not in _JOINS:
            raise Untraceable(f"a {join.how} JOIN, as of a subquery of several rows", "let it return an aggregate")
        if join.how in LEFT_ALONE and join.equal and not (join.alike or join.others or join.finds_one):
            join = replace(join, right=self._existing(join.right, join.theirs))
        join = self._with_one_row(join)
        if join.how in (*BOTH, "LEFT OUTER", *LEFT_ALONE) and (ways := join.ways(left=True)):
            return self._rooted(join, ways, left=True)
        if join.how in (*BOTH, "RIGHT OUTER") and (ways := join.ways(left=False)):
            return self._rooted(join, ways, left=False)
        return self._paired(join)

    def _with_values(self, join: Join) -> Block:
        """A join with rows of no table: of each row of the other side on its own, by their places."""
        rows, values = (join.left, join.right) if join.left.inputs else (join.right, join.left)
        outer = "LEFT OUTER" if rows is join.left else "RIGHT OUTER"
        if join.how not in ("INNER", "CROSS", outer, *LEFT_ALONE) or not rows.inputs:
            raise Untraceable("a join that keeps rows of no table", "keep the rows of the tables, and join the others")
        if join.how in LEFT_ALONE:
            return replace(rows, make=join.make())
        if self._promised and rows.scope is None:
            return replace(rows, make=join.make(), output=(*join.output, *missing(rows.key, join.output)))
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

    def _rooted(self, join: Join, ways: Sequence[Sequence[Pair]], *, left: bool) -> Block:
        """A join of which a row of one side names all rows of the other one."""
        root, other = map(self._stages.settled, (join.left, join.right) if left else (join.right, join.left))
        found = links(root, other, ways)
        if found is None:  # the key is computed
            root = self._stages.stage(root)
            found = links(root, other, ways)
        if found is None:
            raise Untraceable("a join along no reference", "compare a foreign key with the whole key that it points to")
        join = replace(join, left=root, right=other) if left else replace(join, left=other, right=root)
        return Block(
            join.make(), (*join.output, *missing(root.key, join.output)), {**root.inputs, **other.inputs}, root.key,
            direct={**root.direct, **other.direct}, computed={**root.computed, **other.computed}, same=join.same,
            references=(*root.references, *found, *other.references), root_key=root.root_key, present=root.present,
            filled=root.filled,
        )  # fmt: skip

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
            is_one = joins and left.present and right.present and join.is_of_ones
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
        different, rows = self._stages.different(by), self._block(node.children[0])
        if rows.scope is None and rows.inputs and {a.id for a in rows.key} <= {a.id for a in by}:
            return self._row_groups(node, rows)
        below = self._stages.within(rows, different, needed=(*by, *node.all("aggregateExpressions")))
        returned = renamed(node.all("aggregateExpressions"), node.output, different)
        further = missing(returned, node.output)

        def make(spark: SparkSession, relations: Relations) -> Any:
            rows = below.make(spark, relations)
            return catalyst.aggregation(spark, node.jvm, [a.jvm for a in further], rows)

        return self._groups(make, (*node.output, *further), below, returned)

    def _row_groups(self, node: Node, below: Block) -> Block:
        """Groups of one row each: the key of the rows is among what they are grouped by."""
        listed = node.all("aggregateExpressions")
        key = renamed(listed, node.output, below.key)
        further = missing(key, node.output)

        def make(spark: SparkSession, relations: Relations) -> Any:
            return catalyst.aggregation(spark, node.jvm, [a.jvm for a in further], below.make(spark, relations))

        computed = {**below.computed, **{one.id: one.bare for one in listed if one.kind == "Alias"}}
        return replace(below, make=make, output=(*node.output, *further), key=key, computed=computed, first={})

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
            if is_ordered(top):
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
        found_by = [links(rows, stage, [[(rows.shared, stage.shared)]]) or () for stage in looked_up]
        references = (*rows.references, *(reference for some in found_by for reference in some))
        joined = replace(rows, make=make, inputs=inputs, references=references)
        return joined, Scalars({one.id: stage.output[0].id for one, stage in stages})


def _require_no_other_subquery(node: Node) -> None:
    """Refuse a subquery that is no value of a selection: the optimizer has made joins of most."""
    joined = [one for e in node.expressions for one in scalars(e)] if node.kind in ("Project", "Filter") else []
    if len(list(node.subqueries)) > len(joined):
        raise Untraceable("a subquery in a group, a join or an order", "write it in SELECT or WHERE, or join it")
