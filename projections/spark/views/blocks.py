"""Operators of a stage while a query is cut: what builds them over other rows, and what is known of their rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.views import Input, Within
from projections.planning.expressions import conditions
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

LEFT_ALONE: Final = ("LEFT SEMI", "LEFT ANTI")


@dataclass(frozen=True)
class Block:
    """Operators of one stage that is not closed yet.

    ``key`` are attributes that tell its rows apart, in a partition if it has a ``scope``: the attributes of that.
    Without one, it has a row for each row of its first input. ``parts`` are the columns of a partition in each input.
    ``direct`` are the attributes that are columns of an input. ``all_rows`` has one value in all rows. With ``of_rows``
    a partition has one row of each input at most. ``joins`` says that a partition has what is equal in joins alone,
    ``single`` that it has one row then, ``present`` that no part of the key or of the scope is null. ``first`` has, by
    the ids of attributes, the one that is the first of them that is not null.
    """

    make: Make
    output: tuple[Node, ...]
    inputs: Mapping[str, Input]
    key: tuple[Node, ...] = ()
    scope: tuple[Node, ...] | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    direct: Mapping[int, str] = field(default_factory=dict)
    all_rows: Node | None = None
    of_rows: bool = False
    joins: bool = False
    single: bool = False
    present: bool = False
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
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self._inputs]
        )

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The stage's rows."""
        spark = frames[0].sparkSession
        plan = self._make(spark, dict(zip(self._inputs, frames, strict=True)))
        return catalyst.selection(spark, plan, self._columns)


Pair = tuple[Node, Node]


@dataclass(frozen=True)
class Join:
    """Two blocks and what a join compares: attributes that are ``equal``, or ``alike`` with nulls, and ``others``.

    Of each list of ``either``, which is among ``others`` too, one pair is equal.
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

    @property
    def pairs(self) -> list[Pair]:
        """The attributes of both sides that are compared."""
        return [*self.equal, *self.alike]

    @property
    def ours(self) -> list[Node]:
        """The attributes of the left side that equal some of the right one."""
        return [a for a, _ in self.equal]

    @property
    def theirs(self) -> list[Node]:
        """The attributes of the right side that equal some of the left one."""
        return [b for _, b in self.equal]

    @property
    def leads_right(self) -> bool:
        """Whether a row of the left side names all rows of the right one that it meets, and shows one at most."""
        several = self.how in LEFT_ALONE
        either = ([b for _, b in some] for some in self.either if several or len(some) == 1)
        return is_reached(self.right, self.theirs) or any(
            all(is_reached(self.right, [*self.theirs, one]) for one in alternatives) for alternatives in either
        )

    @property
    def referring(self) -> tuple[list[Node], list[Node]]:
        """The attributes of both sides that may equal some of the other one."""
        pairs = [*self.equal, *(pair for some in self.either for pair in some)]
        return [a for a, _ in pairs], [b for _, b in pairs]

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
    for part in conditions(node):
        sides = [part.one("left"), part.one("right")] if part.kind in EQUAL else []
        for one, other in (sides, sides[::-1]) if sides else ():
            if left.computes(one) and right.computes(other):
                left, a = _with_value(spark, left, one)
                right, b = _with_value(spark, right, other)
                (equal if part.kind == "EqualTo" else alike).append((a, b))
                break
        else:
            others.append(part)
            either += [pairs for pairs in [_alternatives(part, left, right)] if pairs]
    return Join(node.how, node.jvm.hint(), left, right, equal, alike, others, node.output, either)


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
    return block, attribute


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

    direct = {a.id: column for column, a in own}
    shared = all_rows if all_rows is not None and all_rows.id in direct else None
    output, present = tuple(a for _, a in own), not table.key_may_be_null
    return Block(make, output, {name: table}, key, direct=direct, all_rows=shared, present=present)


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
    scope = block.scope or ()
    key = {a.id for a in (scope if block.single else (*block.key, *scope))}
    return bool(key) and key <= {a.id for a in compared}
