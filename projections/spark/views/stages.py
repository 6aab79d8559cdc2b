"""A query cut into stages: views that read each other, each of which a batch keeps up to date by what it reaches.

Spark's optimizer writes a query without subqueries, with its filters near the tables and its joins by what they
compare. That plan is cut below each operator that brings rows together. Joins along references stay whole. Every stage
is a view of one of two kinds: rows of a root, or rows of one partition at a time. Each is then checked as any view is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.naming import ALL_ROWS, is_column
from projections.declaring.views import InferredReferences, Input, View
from projections.planning.conjuncts import conditions
from projections.planning.marks import role
from projections.planning.plans import CONSTANT, SAME_ROWS, Node, attribute_of
from projections.planning.rows import Untraceable
from projections.spark.views import catalyst
from projections.spark.views.blocks import (
    Block,
    Make,
    Relations,
    Scalars,
    StageFunction,
    is_reached,
    may_order,
    missing,
    over,
    pairs_of,
    read,
    scalars,
    with_computed,
)
from projections.spark.views.catalyst import Named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SKIPPED: Final = (*SAME_ROWS, "WindowGroupLimit", "LocalLimit")  # what the optimizer adds, an operator above says
_LEFT_ALONE: Final = ("LEFT SEMI", "LEFT ANTI")
_JOINS: Final = ("INNER", "CROSS", "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", *_LEFT_ALONE)
_LONGEST: Final = 30  # of a name that an expression gives


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
        self._final = list(zip(map(_usable, names), plan.output, strict=True))
        if len({name.lower() for name, _ in self._final}) < len(self._final):
            raise Untraceable("a column name twice", "give each column a name of its own")
        self._aliased: dict[int, Node] = {}
        self._names = _names(plan, self._final, self._aliased)
        self._stages: list[View] = []
        self._read: set[str] = set()  # the parameters that are
        self._taken = set(inputs)

    def stages(self) -> tuple[View, ...]:
        self._close(self._block(self._plan), self._final, self._view.name)
        if unread := [name for name in self._inputs if name not in self._read]:
            raise Untraceable(f"the parameter {unread[0]!r}, which it does not read", "leave the parameter out")
        view = self._view
        kept = any(getattr(table, "retain", None) is not None for table in self._inputs.values())
        if len(self._stages) > 1 and (view.reach is not None or view.final is not None or kept):
            raise Untraceable(
                "several stages, and final results or rows that are forgotten",
                "declare what comes last as a view over a view of the rest",
            )
        last = replace(self._stages[-1], topic=view.topic, lake=view.lake, final=view.final, reach=view.reach)
        return (*self._stages[:-1], last)

    def _free(self, names: Iterator[str]) -> str:
        """The first of some names that nothing has which a stage reads."""
        free = next(name for name in names if name not in self._taken)
        self._taken.add(free)
        return free

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
            case "GlobalLimit":
                return self._limited(node)
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
        place = self._free(f"{name}_{number}" for number in count(2)) if name in self._read else name
        self._read.add(name)
        table = self._view.table(name)
        columns = [(a.name, a) for a in node.output]
        known = dict(columns)
        if not set(table.key) <= set(known):
            raise Untraceable(f"rows of {name!r} without their key", f"select {', '.join(table.key)}")
        key = tuple(known[column] for column in table.key)
        return read(place, self._inputs[name], columns, key, table.key)

    def _projected(self, node: Node) -> Block:
        return self._selected(node, *self._with_scalars(node))

    def _selected(self, node: Node, below: Block, subqueries: Scalars) -> Block:
        listed = node.all("projectList")
        kept = missing((*below.key, *(below.scope or ())), listed)

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            named = [subqueries.filled(spark, one.jvm, plan) for one in listed]
            return catalyst.projection(spark, [*named, *(a.jvm for a in kept)], plan)

        return replace(below, make=make, output=(*node.output, *kept))

    def _filtered(self, node: Node) -> Block:
        below, subqueries = self._with_scalars(node)

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            return catalyst.filtering(spark, subqueries.filled(spark, node.one("condition").jvm, plan), plan)

        return replace(below, make=make)

    # ---- rows brought together

    def _joined(self, node: Node) -> Block:
        if node.how not in _JOINS:
            raise Untraceable(
                "EXISTS, IN, or a subquery of several rows as a value",
                "write it in WHERE, or join the different values",
            )
        left, right = (self._block(node.one(side)) for side in ("left", "right"))
        pairs = list(pairs_of(node, left, right, "EqualTo"))
        if (
            node.how in _LEFT_ALONE
            and not is_reached(right, [b for _, b in pairs])
            and len(pairs) == len(conditions(node))
        ):
            right = self._existing(right, [b for _, b in pairs])
        if root := self._root(node.how, left, right, pairs):
            left, right = self._settled(left), self._settled(right)
            return self._rooted(node, left, right, left if root == "left" else right)
        return self._paired(node, left, right)

    def _root(self, how: str, left: Block, right: Block, pairs: Sequence[tuple[Node, Node]]) -> str | None:
        """The side of which a joined row has one row."""
        if not left.inputs or not right.inputs:
            raise Untraceable("a join with rows of no table", "declare them as a table")
        if how in ("INNER", "CROSS", "LEFT OUTER", *_LEFT_ALONE) and is_reached(right, [b for _, b in pairs]):
            return "left"
        if how in ("INNER", "CROSS", "RIGHT OUTER") and is_reached(left, [a for a, _ in pairs]):
            return "right"
        return None

    def _rooted(self, node: Node, left: Block, right: Block, root: Block) -> Block:
        inputs = {name: table for one in (root, left, right) for name, table in one.inputs.items()}
        output = (*node.output, *missing(root.key, node.output))
        return Block(over(node, left, right), output, inputs, root.key, root.root_key)

    def _paired(self, node: Node, left: Block, right: Block) -> Block:
        """A join of several rows with several: of one partition of both sides at a time, by what it compares."""
        if node.how == "FULL OUTER":
            raise Untraceable(
                "a FULL JOIN of rows that are not returned under the keys of both sides",
                "compare a whole key, and select the key of each side under a name of its own",
            )
        pairs = list(pairs_of(node, left, right, "EqualTo", "EqualNullSafe"))
        turned = [(b, a) if node.how == "RIGHT OUTER" else (a, b) for a, b in pairs]
        scope, equal = [a for a, _ in turned], [b for _, b in turned]
        by = self._named_apart(scope, [*self._key_columns(left), *self._key_columns(right)], equal)
        one, other = (
            self._parted(side, dict(zip((pair[place].id for pair in pairs), by, strict=True)))
            for place, side in enumerate((left, right))
        )
        key = one.key if node.how in _LEFT_ALONE else (*one.key, *other.key)
        output = (*node.output, *missing(key, node.output))
        return self._of_partitions(over(node, one, other), output, {**one.inputs, **other.inputs}, key, scope)

    def _existing(self, block: Block, by: Sequence[Node]) -> Block:
        """The different values of some attributes, as a stage."""
        below = self._grouped(block, by, [])

        def make(spark: SparkSession, relations: Relations) -> Any:
            return catalyst.distinct(spark, [a.jvm for a in by], below.make(spark, relations))

        return self._stage(Block(make, tuple(by), below.inputs, scope=tuple(by)))

    def _aggregated(self, node: Node) -> Block:
        by = node.all("groupingExpressions")
        if not all(one.is_attribute for one in by):
            raise Untraceable("a group by an expression", "select it in a subquery, and group by its name")
        below = self._grouped(self._block(node.children[0]), by, node.all("aggregateExpressions"))
        further = missing(by, node.output)

        def make(spark: SparkSession, relations: Relations) -> Any:
            rows = below.make(spark, relations)
            return catalyst.aggregation(spark, node.jvm, [a.jvm for a in further], rows)

        return Block(make, (*node.output, *further), below.inputs, scope=tuple(by))

    def _grouped(self, block: Block, by: Sequence[Node], expressions: Sequence[Node]) -> Block:
        """Rows of a partition that is grouped, with what the expressions are made of."""
        needed = {id for one in (*by, *expressions) for id in one.references}
        names = self._named_apart(by, self._key_columns(block))
        return self._parted(block, dict(zip((a.id for a in by), names, strict=True)), needed)

    def _parted(self, block: Block, by: Mapping[int, str], needed: Collection[int] | None = None) -> Block:
        """The rows of partitions: those of its only input, or a stage that has the partition under these names."""
        if by and block.scope is None and all(block.direct.get(id) == name for id, name in by.items()):
            return block
        return self._stage(block, needed, under=by, of_all=not by)

    def _named_apart(
        self, attributes: Sequence[Node], others: Iterable[Named] = (), equal: Sequence[Node] = ()
    ) -> list[str]:
        """A name of its own for each attribute, which none of ``others`` has but those that are ``equal`` to it."""
        taken: dict[str, set[int]] = {}
        for name, attribute in others:
            taken.setdefault(name, set()).add(self._source(attribute))
        for attribute, alike in zip(attributes, equal or attributes, strict=True):
            name, sources = self._names[attribute.id], {self._source(attribute), self._source(alike)}
            while not taken.setdefault(name, sources) <= sources:
                name += "_"
            self._names[attribute.id] = name
        return [self._names[attribute.id] for attribute in attributes]

    def _of_partitions(
        self, make: Make, output: Sequence[Node], inputs: Mapping[str, Input], key: Sequence[Node], by: Sequence[Node]
    ) -> Block:
        """Rows of one partition at a time, whose key has a name for each column from now on."""
        self._named_apart((*by, *key))
        return Block(make, tuple(output), inputs, tuple(key), scope=tuple(by))

    def _key_columns(self, block: Block) -> list[Named]:
        """The columns that a stage of a block has as its key in any case."""
        if len(block.root_key) > len(block.key):
            raise Untraceable(
                "a join with the one row of an aggregate", "write it as a value: … WHERE x > (SELECT avg(x) FROM t)"
            )
        if block.scope is None:
            return list(zip(block.root_key, block.key, strict=True))
        return [(self._names[a.id], a) for a in (*block.scope, *block.key)]

    def _windowed(self, node: Node) -> Block:
        by = node.all("partitionSpec")
        if not all(one.is_attribute for one in by):
            raise Untraceable("a window by an expression", "select it in a subquery, and partition by its name")
        block = self._block(node.children[0])
        below = self._grouped(block, by, block.output)

        def make(spark: SparkSession, relations: Relations) -> Any:
            rows = below.make(spark, relations)
            return catalyst.window(spark, node.jvm, [a.jvm for a in below.key] if may_order(node) else [], rows)

        output = (*node.output, *missing(below.key, node.output))
        return self._of_partitions(make, output, below.inputs, below.key, by)

    def _limited(self, node: Node) -> Block:
        """The first rows of all. What is selected of them may leave out what they are ordered by."""
        limit, top = node.one("limitExpr").jvm, node.children[0]
        top = top.children[0] if top.kind == "LocalLimit" else top
        rows, selected = top, list[Node]()
        while rows.kind == "Project" and not list(rows.subqueries):
            selected.append(rows)
            rows = rows.children[0]
        if rows.kind != "Sort":
            rows, selected = top, []
            if _is_ordered(top):
                raise Untraceable("a limit of rows that a subquery orders", "write ORDER BY where LIMIT is")
        order = rows.all("order") if rows.kind == "Sort" else ()
        below = self._stage(self._block(rows), of_all=True)

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = below.make(spark, relations)
            return catalyst.first_rows(spark, plan, [one.jvm for one in order], [a.jvm for a in below.key], limit)

        block = self._of_partitions(make, below.output, below.inputs, below.key, ())
        for project in reversed(selected):
            block = self._selected(project, block, Scalars({}))
        return block

    def _united(self, node: Node) -> Block:
        """Rows of several stages, each known by its part of the union and by its key there."""
        blocks = [self._settled(self._block(child)) for child in node.children]
        width = max(len(self._key_columns(block)) for block in blocks)
        parts, key = list[Block](), list[list[Node]]()
        for number, (block, child) in enumerate(zip(blocks, node.children, strict=True)):
            if any(a.type == "binary" for _, a in self._key_columns(block)):
                raise Untraceable("a union of rows whose key is binary", "write a view for each part")
            named = catalyst.row_key(self._spark, number, [a.jvm for _, a in self._key_columns(block)], width)
            key.append([attribute_of(one.toAttribute()) for one in named])
            self._names |= {a.id: a.name for a in key[-1]}
            output = (*child.output, *key[-1])
            own = replace(
                block, make=with_computed(block, child.output, named), output=(*output, *block.key), direct={}
            )
            parts.append(self._stage(own, under={a.id: a.name for a in key[-1]}))

        def union(spark: SparkSession, relations: Relations) -> Any:
            chosen = zip(parts, node.children, key, strict=True)
            rows = [
                catalyst.projection(spark, [a.jvm for a in (*child.output, *of)], part.make(spark, relations))
                for part, child, of in chosen
            ]
            return node.jvm.withNewChildren(catalyst.sequence(spark, rows))

        inputs = {name: table for part in parts for name, table in part.inputs.items()}
        rows = self._of_partitions(union, (*node.output, *key[0]), inputs, key[0][:1], key[0][1:])
        return replace(rows, of_rows=True)

    # ---- subqueries of one value

    def _with_scalars(self, node: Node) -> tuple[Block, Scalars]:
        """The rows below an operator, joined with the one row of each subquery in its expressions."""
        below = self._block(node.children[0])
        found = [one for expression in node.expressions for one in scalars(expression)]
        if not found:
            return below, Scalars({})
        stages = [(one, self._stage(self._block(one.one("plan")))) for one in found]
        if any(one.all("outerAttrs") or stage.key for one, stage in stages):
            raise Untraceable("a subquery that may return several rows", "let it return an aggregate without GROUP BY")
        rows = self._stage(below, of_all=True)

        def make(spark: SparkSession, relations: Relations) -> Any:
            plan = rows.make(spark, relations)
            for _, stage in stages:
                plan = catalyst.joined_by_last(spark, plan, stage.make(spark, relations))
            return plan

        inputs = {**rows.inputs, **{n: t for _, stage in stages for n, t in stage.inputs.items()}}
        joined = replace(rows, make=make, inputs=inputs, direct={})
        return joined, Scalars({one.id: stage.output[0].id for one, stage in stages})

    # ---- stages

    def _settled(self, block: Block) -> Block:
        """The block itself if it has joins alone, or a stage of it."""
        return block if block.scope is None else self._stage(block)

    def _stage(
        self,
        block: Block,
        needed: Collection[int] | None = None,
        *,
        under: Mapping[int, str] | None = None,
        of_all: bool = False,
    ) -> Block:
        """Close a block, and read the stage that it is; ``under`` has further names of attributes."""
        if any(self._names[a.id] != (under or {}).get(a.id, self._names[a.id]) for a in block.scope or ()):
            block = self._stage(block)  # a partition keeps the names of its columns
        parts = [(name, a) for a in block.output for id, name in (under or {}).items() if a.id == id]
        wanted = [(self._names[a.id], a) for a in block.output if needed is None or a.id in needed]
        rows = f"{self._view.name}_rows"
        name = self._free(f"{rows}{'' if number == 1 else number}" for number in count(1))
        columns, key = self._close(block, [*parts, *wanted], name, of_all=of_all)
        stage, places = self._stages[-1], {self._source(a): column for column, a in columns}
        places |= {self._source(a): column for column, a in parts}
        if any(self._source(dict(columns)[column]) != source for source, column in places.items()):
            raise Untraceable(f"a name of two columns in {name}", "give each column of the tables a name of its own")
        held = [(places[self._source(a)], a) for a in block.output if self._source(a) in places]
        return read(name, stage, held, key, stage.key, of_all=of_all or block.scope == ())

    def _close(
        self, block: Block, wanted: Sequence[Named], name: str, *, of_all: bool = False
    ) -> tuple[list[Named], tuple[Node, ...]]:
        if not block.inputs:
            raise Untraceable("rows of no table", "read a table")
        if block.scope is None:
            keys = self._key_columns(block)
            by: tuple[str, ...] = ()
        else:
            by = tuple(self._names[a.id] for a in block.scope) or (ALL_ROWS,)
            if name == self._view.name:
                # A partition has the names of its inputs' columns: other parts of the key give way to results.
                self._named_apart(block.key, [*((self._names[a.id], a) for a in block.scope), *wanted])
            keys = list({self._names[a.id]: a for a in (*block.key, *block.scope)}.items())
        columns = self._columns(keys, wanted, final=name == self._view.name)
        own = tuple(key for key, _ in keys)
        of_all = of_all or block.scope == ()
        if of_all and ALL_ROWS in {column.lower() for column, _ in columns}:
            raise Untraceable(f"a column {ALL_ROWS!r}, which is a name of ours", "give the column another name")
        signature = f"{name} of {self._view.name}"
        function = StageFunction(block, columns, signature, of_all=of_all)
        view_key = own or by
        declared = () if by else InferredReferences()
        self._stages.append(View(name, view_key, block.inputs, declared, function, by=by))
        return columns, tuple(a for _, a in keys)

    def _columns(self, keys: Sequence[Named], wanted: Sequence[Named], *, final: bool) -> list[Named]:
        """The columns of a stage: those that are wanted, and its key where that is not among these."""
        key, columns = dict(keys), dict[str, Node]()
        for name, attribute in wanted:
            free, known = name, {**key, **columns}
            while free in known and self._source(known[free]) != self._source(attribute):
                free += "_"
            if final and free != name:
                raise Untraceable(f"the name {name!r} for another column than its key", "give the column another name")
            columns.setdefault(free, attribute)
        return list({**columns, **key}.items())

    def _source(self, attribute: Node) -> int:
        """The number of the attribute that one is under another name."""
        while attribute.id in self._aliased:
            attribute = self._aliased[attribute.id]
        return attribute.id


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


def _names(plan: Node, final: Sequence[Named], aliased: dict[int, Node]) -> dict[int, str]:
    """A name for each attribute of a plan: that of the query's result which it becomes, or one made of its own."""
    names: dict[int, str] = {}
    every = list(_attributes(plan, aliased))
    for name, attribute in final:
        one: Node | None = attribute
        while one is not None:
            names.setdefault(one.id, name)
            one = aliased.get(one.id)
    for attribute in every:
        if attribute.id not in names:
            names[attribute.id] = _usable(attribute.name)
    return names


def _usable(name: str) -> str:
    """A name for a column: that of an expression is its text, ``sum(price)``."""
    if is_column(name):
        return name
    plain = re.sub(r"\W+", "_", name).strip("_")[:_LONGEST]
    return plain if plain[:1].isalpha() else f"c_{plain}"


def _attributes(plan: Node, aliased: dict[int, Node]) -> Iterator[Node]:
    """Every attribute that an operator returns; ``aliased`` gets those that are another one under a name."""
    for below in (*plan.children, *plan.subqueries):
        yield from _attributes(below, aliased)
    for argument in ("projectList", "aggregateExpressions"):
        aliased.update({n.id: n.bare for n in plan.all(argument) if n.kind == "Alias" and n.bare.is_attribute})
    if plan.kind == "Union":  # has the attributes of its first part, which are others in the next parts
        for attribute in plan.output:
            aliased.pop(attribute.id, None)
    yield from plan.output
