"""Operators of a stage while a query is cut: what builds them over other rows, and what is known of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.naming import parameters
from projections.declaring.views import Input, Reference, Within
from projections.planning.expressions import alternatives, conditions
from projections.planning.partition_rows import EQUAL
from projections.planning.partitions import BY_VALUE
from projections.planning.plans import Node, attribute_of
from projections.spark.scala import items
from projections.spark.views import catalyst
from projections.spark.views.catalyst import Named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Relations = Mapping[str, "DataFrame"]
Make = Callable[["SparkSession", Relations], Any]
"""Builds a plan of Catalyst's over the rows of a stage's inputs, by their names."""

First = Mapping[frozenset[int], Node]
Column = tuple[str, str]
"""An input of a stage, and a column of it."""

Same = Mapping[Column, frozenset[Column]]

LEFT_ALONE: Final = ("LEFT SEMI", "LEFT ANTI")
BOTH: Final = ("INNER", "CROSS")


@dataclass(frozen=True)
class Block:
    """Operators of one stage that is not closed yet.

    ``key`` are attributes that tell its rows apart, in a partition if it has a ``scope``: the attributes of that.
    Without one, it has a row for each row of its first input. ``parts`` are the columns of a partition in each input.
    ``direct`` are the attributes that are columns of an input, ``computed`` the expressions of others. A column of
    ``same`` has the value of others, or null. ``references`` lead from the first input, whose key is ``root_key``, to
    the others. ``all_rows`` has one value in all rows. With ``of_rows`` a partition has one row of each input at most.
    ``joins`` says that a partition has what is equal in joins alone, ``single`` that it has one row then, ``present``
    that no part of the key or of the scope is null, as the attributes ``filled``. ``first`` has, by the ids of
    attributes, the one that is the first of them that is not null.
    """

    make: Make
    output: tuple[Node, ...]
    inputs: Mapping[str, Input]
    key: tuple[Node, ...] = ()
    scope: tuple[Node, ...] | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    direct: Mapping[int, Column] = field(default_factory=dict)
    computed: Mapping[int, Node] = field(default_factory=dict)
    same: Same = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    root_key: tuple[Column, ...] = ()
    all_rows: Node | None = None
    of_rows: bool = False
    joins: bool = False
    single: bool = False
    present: bool = False
    filled: frozenset[int] = frozenset()
    first: First = field(default_factory=dict)

    def has(self, attribute: Node) -> bool:
        """Whether it returns the attribute."""
        return attribute.is_attribute and attribute.id in {a.id for a in self.output}

    def parts_of(self, attribute: Node) -> frozenset[int]:
        """The ids of the attributes of which one is the first, or its own."""
        return next((parts for parts, one in self.first.items() if one.id == attribute.id), frozenset({attribute.id}))

    def computes(self, expression: Node) -> bool:
        """Whether an expression is over its attributes alone."""
        needed = set(expression.references)
        return bool(needed) and needed <= {a.id for a in self.output} and not list(expression.plans)

    def columns_of(self, expression: Node) -> frozenset[Column] | None:
        """The columns of inputs of which the value of an expression is one, or null; None of a value that is computed.

        The fields of a record that is such a column are named behind it, ``_valid.key``.
        """
        if expression.kind == "GetStructField":
            part = str(expression.jvm.extractFieldName())
            whole = self.columns_of(expression.children[0])
            return whole and frozenset((name, f"{column}.{part}") for name, column in whole)
        if expression.is_attribute and expression.id in self.direct:
            return frozenset({self.direct[expression.id]})
        if expression.is_attribute:
            return self.columns_of(self.computed[expression.id]) if expression.id in self.computed else None
        values = alternatives(expression)
        found = [self.columns_of(value) for value in values or ()]
        return None if values is None or None in found else frozenset(column for one in found for column in one or ())

    def alike(self, column: Column) -> frozenset[Column]:
        """A column and those that equal it where it is not null."""
        return self.same.get(column, frozenset()) | {column}

    def is_present(self, attribute: Node) -> bool:
        """Whether an attribute is never null: a part of the key or scope, or one that a filter has looked at."""
        own = (*self.key, *(self.scope or ())) if self.present else ()
        return attribute.is_attribute and attribute.id in self.filled.union(a.id for a in own)

    def is_column(self, attribute: Node, column: Column) -> bool:
        """Whether an attribute has the value of a column in all rows."""
        known = self.computed.get(attribute.id, attribute)
        wide = known.kind == "Cast" and alternatives(known)  # another integer of the same value
        own = self.direct.get((wide[0] if wide else attribute).id)
        return own is not None and own in self.alike(column) and column in self.alike(own)

    def named_by(self, attribute: Node) -> frozenset[Column]:
        """The columns that an attribute names the values of, if it is not null."""
        column = self.column_of(attribute)
        return frozenset() if column is None else self.alike(column)

    def column_of(self, attribute: Node) -> Column | None:
        """The column whose value an attribute has, if it is not null."""
        columns: frozenset[Column] = self.columns_of(attribute) or frozenset()
        return next(iter(columns)) if len(columns) == 1 else None

    @property
    def shared(self) -> Node:
        """The attribute that has one value in all rows; after that was added."""
        assert self.all_rows is not None  # noqa: S101 - the caller added it
        return self.all_rows

    @property
    def is_of_all(self) -> bool:
        """Whether its scope is all rows."""
        return self.scope is not None and self.all_rows is not None and [a.id for a in self.scope] == [self.all_rows.id]

    @property
    def within(self) -> Within:
        """Of which rows a partition of it is."""
        return "all" if self.is_of_all else "row" if self.of_rows else "group"

    @property
    def is_one_row(self) -> bool:
        """Whether it has one row."""
        return self.all_rows is not None and {a.id for a in (*self.key, *(self.scope or ()))} == {self.all_rows.id}


class StageFunction:
    """A part of a query's plan as the function of a view: its arguments are DataFrames, in the order of the inputs."""

    def __init__(self, block: Block, columns: Sequence[Named], signature: str) -> None:
        self._make, self._inputs, self._columns = block.make, tuple(block.inputs), columns
        self.signature = signature
        self.__signature__ = parameters(*self._inputs)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The stage's rows."""
        spark = frames[0].sparkSession
        plan = self._make(spark, dict(zip(self._inputs, frames, strict=True)))
        return catalyst.selection(spark, plan, self._columns)


Pair = tuple[Node, Node]


@dataclass(frozen=True)
class Join:
    """Two blocks and what a join compares: attributes that are ``equal``, or ``alike`` with nulls, and ``others``.

    Of each list of ``either``, which is among ``others`` too, one pair is equal. It is ``promised`` that each row is
    there once.
    """

    how: str
    hint: Any
    left: Block
    right: Block
    equal: Sequence[Pair]
    alike: Sequence[Pair]
    others: Sequence[Node]
    output: tuple[Node, ...]
    either: Sequence[Sequence[Pair]] = ()
    promised: bool = False

    @property
    def pairs(self) -> list[Pair]:
        """The attributes of both sides that are compared."""
        return [*self.equal, *self.alike]

    @property
    def theirs(self) -> list[Node]:
        """The attributes of the right side that equal some of the left one."""
        return [b for _, b in self.equal]

    @property
    def finds_one(self) -> bool:
        """Whether a row of the left side equals one of the right side at most."""
        return is_reached(self.right, self.theirs)

    def ways(self, *, left: bool) -> list[list[Pair]] | None:
        """The pairs by which a row of one side names all rows of the other one that it meets, and shows one at most.

        In each row, those of one list are equal. The first of a pair is of the side that names rows.
        """
        some = [one for one in self.either if self.promised or self.how in LEFT_ALONE or len(one) == 1]
        by_one: list[list[Sequence[Pair]]] = [[[*self.equal, pair] for pair in one] for one in some]
        for pairs in ([self.equal], *by_one):
            found = [[pair if left else pair[::-1] for pair in one] for one in pairs]
            if all(is_reached(self.right if left else self.left, [b for _, b in one]) for one in found):
                return found
        return None

    @property
    def is_of_ones(self) -> bool:
        """Whether a row meets one row of the other side at most, and the other way round."""
        left, right = zip(*self.pairs, strict=True)
        return is_reached(self.left, left) and is_reached(self.right, right)

    @property
    def same(self) -> Same:
        """The columns of both sides that have the value of others in the joined rows, or null."""
        same = {**self.left.same, **self.right.same}
        for a, b in self.equal if self.how in (*BOTH, "LEFT OUTER", "RIGHT OUTER") else ():
            one, other = self.left.column_of(a), self.right.column_of(b)
            if one is not None and other is not None:
                known = {one: same.get(one, frozenset()) | {one}, other: same.get(other, frozenset()) | {other}}
                same |= {other: known[one] | known[other]} if self.how != "RIGHT OUTER" else {}
                same |= {one: known[one] | known[other]} if self.how != "LEFT OUTER" else {}
        return same

    def make(self) -> Make:
        """The join over the rows of both sides."""

        def make(spark: SparkSession, relations: Relations) -> Any:
            sides = [one.make(spark, relations) for one in (self.left, self.right)]
            equal, alike = ([(a.jvm, b.jvm) for a, b in pairs] for pairs in (self.equal, self.alike))
            others = [one.jvm for one in self.others]
            return catalyst.joined(spark, self.how, sides, equal, alike, others, hint=self.hint)

        return make


def compared(spark: SparkSession, node: Node, left: Block, right: Block) -> Join:
    """A join over two blocks, which compute the expressions that it compares."""
    equal, alike, others, either = list[Pair](), list[Pair](), list[Node](), list[list[Pair]]()
    for condition in conditions(node):
        part = _of_no_null(condition, left, right)
        sides = [part.one("left"), part.one("right")] if part.kind in EQUAL else []
        for one, other in (sides, sides[::-1]) if sides else ():
            if left.computes(one) and right.computes(other):
                left, a = _with_value(spark, left, one)
                right, b = _with_value(spark, right, other)
                is_equal = part.kind == "EqualTo" or left.is_present(a) or right.is_present(b)
                (equal if is_equal else alike).append((a, b))
                break
        else:
            others.append(part)
            either += [pairs for pairs in [_alternatives(part, left, right)] if pairs]
    return Join(node.how, node.jvm.hint(), left, right, equal, alike, others, node.output, either)


def _of_no_null(part: Node, left: Block, right: Block) -> Node:
    """What NOT IN compares, as it is of values that are never null: otherwise, null is as good as equal."""
    equal, *null = part.children if part.kind == "Or" else [part]
    is_not_in = (
        equal.kind == "EqualTo" and [one.kind for one in null] == ["IsNull"] and null[0].sql == f"({equal.sql} IS NULL)"
    )
    known = is_not_in and all(left.is_present(one) or right.is_present(one) for one in equal.children)
    return equal if known else part


def _alternatives(part: Node, left: Block, right: Block) -> list[Pair]:
    """The attributes of both sides of which a condition says that one pair is equal; none if it says anything else."""
    if part.kind in ("Or", "And"):
        found = [_alternatives(child, left, right) for child in part.children]
        if part.kind == "And":
            return next(filter(None, found), [])
        return [pair for pairs in found for pair in pairs] if all(found) else []
    first, *items = part.children if part.kind in ("In", "EqualTo") else [part]
    pairs = [(a, b) for item in items for a, b in ((first, item), (item, first)) if left.has(a) and right.has(b)]
    return pairs if len(pairs) == len(items) else []


def _with_value(spark: SparkSession, block: Block, expression: Node) -> tuple[Block, Node]:
    """A block that has the value of an expression, and the attribute that it is."""
    known = expression if expression.is_attribute else first_of(expression, block.first)
    if known is not None:
        return block, known
    block, (attribute,) = with_values(block, [catalyst.under(spark, expression.jvm, "value")])
    return replace(block, computed={**block.computed, attribute.id: expression}), attribute


@dataclass(frozen=True)
class Scalars:
    """The attributes that hold the values of subqueries, by the numbers of these."""

    attributes: Mapping[int, int]

    def filled(self, spark: SparkSession, expression: Any, plan: Any) -> Any:
        """An expression with attributes of a plan in the place of subqueries."""
        if not self.attributes:
            return expression
        known = {attribute.exprId().id(): attribute for attribute in items(plan.output())}

        def instead(part: Any) -> Any:
            if catalyst.kind_of(part) != "ScalarSubquery":
                return None
            return known[self.attributes[part.exprId().id()]]

        return catalyst.changed(spark, expression, instead)


def scalars(expression: Node) -> Iterator[Node]:
    """The subqueries of one value in an expression."""
    if expression.kind == "ScalarSubquery":
        yield expression
        return
    for child in expression.children:
        yield from scalars(child)


def read(
    name: str, table: Input, columns: Iterable[Named], key: tuple[Node, ...], *, all_rows: Node | None = None
) -> Block:
    """The rows of a table or of a stage."""
    own = list({a.id: (column, a) for column, a in columns}.values())

    def make(spark: SparkSession, relations: Relations) -> Any:
        return catalyst.relation(spark, relations[name], own)

    direct = {a.id: (name, column) for column, a in own}
    shared = all_rows if all_rows is not None and all_rows.id in direct else None
    output, present = tuple(a for _, a in own), not table.key_may_be_null
    of_row = tuple(direct[a.id] for a in key)
    return Block(make, output, {name: table}, key, direct=direct, root_key=of_row, all_rows=shared, present=present)


def with_values(
    block: Block, named: Sequence[Any], output: Sequence[Node] | None = None
) -> tuple[Block, tuple[Node, ...]]:
    """A block with computed columns behind its key and all, or some, of its own; and the attributes that they are."""
    kept = tuple({a.id: a for a in (*(block.output if output is None else output), *block.key)}.values())
    made = tuple(attribute_of(one.toAttribute()) for one in named)

    def make(spark: SparkSession, relations: Relations) -> Any:
        return catalyst.projection(spark, [*(a.jvm for a in kept), *named], block.make(spark, relations))

    return replace(block, make=make, output=(*kept, *made)), made


def may_order(window: Node) -> bool:
    """Whether rows that are equal in a window's order may come in any order: its frames count rows, and no values."""
    expressions = [one.bare for one in window.all("windowExpressions")]
    frames = [one.one("windowSpec").one("frameSpecification").arguments["frameType"]["object"] for one in expressions]
    return all(frame.endswith("RowFrame$") for frame in frames) and not any(
        one.one("windowFunction").kind in BY_VALUE for one in expressions
    )


def is_ordered(node: Node) -> bool:
    """Whether rows come in an order that what selects them does not say."""
    while node.kind in ("Project", "Filter", "SubqueryAlias"):
        node = node.children[0]
    return node.kind == "Sort"


def missing(attributes: Iterable[Node], output: Iterable[Node]) -> list[Node]:
    """Those of some attributes that are not among others."""
    ids = {a.id for a in output}
    return [a for a in attributes if a.id not in ids]


def renamed(
    listed: Sequence[Node], output: Sequence[Node], attributes: Iterable[Node], first: First | None = None
) -> tuple[Node, ...]:
    """Attributes as a selection returns them, under other names or as they are; ``first`` as `Block` has it."""
    named = [(first_of(one.bare, first or {}) or one.bare, a) for one, a in zip(listed, output, strict=True)]
    names = {one.id: a for one, a in named if one.is_attribute}
    return tuple(names.get(a.id, a) for a in attributes)


def first_of(expression: Node, first: First) -> Node | None:
    """The attribute that has the value of an expression over those of which it is the first that is not null."""
    parts = expression.children if expression.kind == "Coalesce" else ()
    # Of floating numbers that are equal, one may be -0.0.
    is_plain = all(a.is_attribute and a.type not in ("float", "double") for a in parts)
    return first.get(frozenset(a.id for a in parts)) if parts and is_plain else None


def is_reached(block: Block, compared: Sequence[Node]) -> bool:
    """Whether some attributes name one row of a block at most."""
    if block.scope is None:
        return bool(block.root_key) and set(block.root_key) <= {
            column for one in compared for column in block.named_by(one)
        }
    key = {a.id for a in (block.scope if block.single else (*block.key, *block.scope))}
    return bool(key) and key <= {a.id for a in compared}


def links(source: Block, target: Block, ways: Iterable[Sequence[Pair]]) -> tuple[Reference, ...] | None:
    """The foreign keys by which rows of one block name the rows of another one in some ways; None without them."""
    found = dict[Reference, None]()
    for pairs in ways:
        by_column = [[a for a, b in pairs if column in target.named_by(b)] for column in target.root_key]
        some = next(filter(None, (_links(source, target, one) for one in product(*by_column))), None)
        if some is None:
            return None
        found |= dict.fromkeys(some)
    return tuple(found)


def _links(source: Block, target: Block, key: Sequence[Node]) -> list[Reference] | None:
    """The foreign keys of which the values of a key are one."""
    columns = [source.columns_of(one) for one in key]
    if None in columns:
        return None
    found = [_of_one_row(source, chosen, target) for chosen in product(*(sorted(one or ()) for one in columns))]
    return None if None in found else [one for one in found if one]


def _of_one_row(source: Block, columns: Sequence[Column], target: Block) -> Reference | None:
    """The foreign key that some columns are, or others of one input that equal them."""
    choices = ([one, *sorted(source.alike(one) - {one})] for one in columns)
    rows = (chosen for chosen in product(*choices) if len({name for name, _ in chosen}) == 1)
    chosen = next(rows, None)
    return None if chosen is None else Reference(chosen[0][0], tuple(c for _, c in chosen), next(iter(target.inputs)))
