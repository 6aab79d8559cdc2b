"""Operators of a stage while a query is cut: what builds them over other rows, and what is known of their rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.naming import ALL_ROWS
from projections.declaring.views import Input
from projections.planning.conjuncts import conditions
from projections.planning.plans import Node
from projections.spark.scala import items
from projections.spark.views import catalyst
from projections.spark.views.catalyst import Named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Relations = Mapping[str, "DataFrame"]
Make = Callable[["SparkSession", Relations], Any]
"""Builds a plan of Catalyst's over the rows of a stage's inputs, by their names."""

_EQUALS: Final = ("Rank", "DenseRank", "PercentRank", "CumeDist")  # give rows that are equal in an order one number


@dataclass(frozen=True)
class Block:
    """Operators of one stage that is not closed yet.

    ``key`` are attributes that tell its rows apart, in a partition if it has a ``scope``: the attributes of that, none
    for all rows. Without one, it has a row for each row of its first input, whose key is ``root_key``. Without a join,
    ``direct`` are the attributes that are columns of its input. With ``of_rows`` a partition has one row of each input
    at most.
    """

    make: Make
    output: tuple[Node, ...]
    inputs: Mapping[str, Input]
    key: tuple[Node, ...] = ()
    root_key: tuple[str, ...] = ()
    scope: tuple[Node, ...] | None = None
    direct: Mapping[int, str] = field(default_factory=dict)
    of_rows: bool = False

    def has(self, attribute: Node) -> bool:
        """Whether it returns the attribute."""
        return attribute.id in {a.id for a in self.output}


class StageFunction:
    """A part of a query's plan as the function of a view: its arguments are DataFrames, in the order of the inputs."""

    def __init__(self, block: Block, columns: Sequence[Named], signature: str, *, of_all: bool) -> None:
        self._make, self._inputs, self._columns, self._of_all = block.make, tuple(block.inputs), columns, of_all
        self.signature = signature
        self.partition = "all" if block.scope == () else "row" if block.of_rows else "group"
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self._inputs]
        )

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The stage's rows."""
        from pyspark.sql import functions as F

        spark = frames[0].sparkSession
        plan = self._make(spark, dict(zip(self._inputs, frames, strict=True)))
        result = catalyst.selection(spark, plan, self._columns)
        return result.withColumn(ALL_ROWS, F.lit(0)) if self._of_all else result


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
    name: str,
    table: Input,
    columns: Sequence[Named],
    key: tuple[Node, ...],
    key_columns: tuple[str, ...],
    *,
    of_all: bool = False,
) -> Block:
    """The rows of a table or of a stage; of a stage of all rows, with the column that they share as the last."""
    columns = list({a.id: (column, a) for column, a in columns}.values())

    def make(spark: SparkSession, relations: Relations) -> Any:
        return catalyst.relation(spark, relations[name], columns, also=[ALL_ROWS] if of_all else [])

    direct = {a.id: column for column, a in columns}
    return Block(make, tuple(a for _, a in columns), {name: table}, key, key_columns, direct=direct)


def over(node: Node, *below: Block) -> Make:
    """An operator over other rows than the plan's."""

    def make(spark: SparkSession, relations: Relations) -> Any:
        return node.jvm.withNewChildren(catalyst.sequence(spark, [one.make(spark, relations) for one in below]))

    return make


def with_computed(block: Block, output: Sequence[Node], named: Sequence[Any]) -> Make:
    """The rows of a block with computed columns."""

    def make(spark: SparkSession, relations: Relations) -> Any:
        kept = {a.id: a for a in (*output, *block.key)}.values()
        return catalyst.projection(spark, [*(a.jvm for a in kept), *named], block.make(spark, relations))

    return make


def may_order(window: Node) -> bool:
    """Whether rows that are equal in a window's order may come in any order: its frames count rows, and no values."""
    expressions = [one.bare for one in window.all("windowExpressions")]
    frames = [one.one("windowSpec").one("frameSpecification").arguments["frameType"]["object"] for one in expressions]
    return all(frame.endswith("RowFrame$") for frame in frames) and not any(
        one.one("windowFunction").kind in _EQUALS for one in expressions
    )


def pairs_of(node: Node, left: Block, right: Block, *kinds: str) -> Iterator[tuple[Node, Node]]:
    """The attributes of both sides that a join compares."""
    for part in conditions(node):
        if part.kind in kinds:
            one, other = part.one("left"), part.one("right")
            for a, b in ((one, other), (other, one)):
                if a.is_attribute and b.is_attribute and left.has(a) and right.has(b):
                    yield a, b


def missing(attributes: Iterable[Node], output: Iterable[Node]) -> list[Node]:
    """Those of some attributes that are not among others."""
    ids = {a.id for a in output}
    return [a for a in attributes if a.id not in ids]


def is_reached(block: Block, compared: Sequence[Node]) -> bool:
    """Whether some attributes name one row of a block at most."""
    key = {a.id for a in (*block.key, *(block.scope or ()))}
    return bool(key) and key <= {a.id for a in compared}
