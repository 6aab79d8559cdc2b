"""Blocks closed into stages: views with a name, a key and columns, which the blocks above them read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from projections.declaring.columns import SCOPE
from projections.declaring.naming import is_column
from projections.declaring.views import Input, View
from projections.planning.plans import Node
from projections.planning.refusals import Untraceable
from projections.spark.views import catalyst
from projections.spark.views.blocks import Block, StageFunction, read, with_values
from projections.spark.views.catalyst import Named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST: Final = 30  # of a name that an expression gives


class Stages:
    """The stages of a view so far, and how a block becomes one of them. ``taken`` are names that no stage has."""

    def __init__(self, spark: SparkSession, view: str, plan: Node, taken: Collection[str]) -> None:
        self.closed: list[View] = []
        self._spark, self._view = spark, view
        self._aliased, self._taken = _aliased(plan), set(taken)
        self._keys: dict[str, tuple[Node, ...]] = {}  # of what blocks read

    def free(self, names: Iterator[str]) -> str:
        """The first of some names that nothing has which a stage reads."""
        free = next(name for name in names if name not in self._taken)
        self._taken.add(free)
        return free

    def with_scope(self, block: Block, named: Sequence[Any], *, of_all: bool) -> Block:
        """A block with computed columns that are the scope."""
        block, made = with_values(block, named)
        return replace(block, scope=made, all_rows=made[0] if of_all else None)

    def within(self, block: Block, by: Sequence[Node], needed: Sequence[Node] | None = None) -> Block:
        """Rows of partitions in which all that are equal in some attributes are together."""
        sources = set(map(self.source, by))
        if block.is_of_all or (block.scope and set(map(self.source, block.scope)) <= sources):
            return block
        parted = self.parted(block, by, needed)
        return replace(parted, scope=tuple(by) or (parted.shared,))

    def met(self, block: Block, by: Sequence[Node]) -> Block:
        """The rows of a partition for a join by some attributes: of a join by the same, these are one stage."""
        if not block.joins or not by or set(map(self.source, block.scope or ())) != set(map(self.source, by)):
            return self.parted(block, by)
        places = {self.source(a): place for place, a in enumerate(block.scope or ())}
        order = [places[self.source(a)] for a in by]
        parts = {name: tuple(columns[place] for place in order) for name, columns in block.parts.items()}
        return replace(block, scope=tuple(by), parts=parts)

    def parted(self, block: Block, by: Sequence[Node], needed: Sequence[Node] | None = None) -> Block:
        """The rows of a partition by some attributes, or of all: those of its only input, or of a stage of them."""
        if not by:
            block = self.sharing(block)
            by = [block.shared]
        if block.scope is not None or len(block.inputs) > 1 or not all(a.id in block.direct for a in by):
            block = self.stage(block, None if needed is None else [*needed, *by])
        (name,) = block.inputs
        return replace(block, parts={name: tuple(block.direct[a.id][1] for a in by)})

    def sharing(self, block: Block) -> Block:
        """A block whose rows have the value that all rows share."""
        if block.is_one_row or (block.all_rows is not None and block.has(block.all_rows)):
            return block
        block, (shared,) = with_values(block, [catalyst.shared_value(self._spark)])
        return replace(block, all_rows=shared)

    def settled(self, block: Block) -> Block:
        """The block itself if it has joins alone, or a stage of it."""
        return block if block.scope is None else self.stage(block)

    def stage(self, block: Block, needed: Sequence[Node] | None = None) -> Block:
        """Close a block, and read the stage that it is: its key, its scope and what is ``needed`` of its columns."""
        ids = None if needed is None else {id for one in needed for id in one.references}
        wanted = [a for a in block.output if ids is None or a.id in ids]
        rows = f"{self._view}_rows"
        name = self.free(f"{rows}{'' if number == 1 else number}" for number in count(1))
        columns = dict[str, Node]()
        for attribute in wanted:
            self.column(attribute, columns)
        key = self.close(block, columns, name)
        names = {self.source(a): column for column, a in columns.items()}
        held = [(names[self.source(a)], a) for a in (*wanted, *key, *(block.scope or ()))]
        return self.read(name, self.closed[-1], held, key, all_rows=block.all_rows)

    def read(
        self, name: str, table: Input, columns: Iterable[Named], key: tuple[Node, ...], *, all_rows: Node | None = None
    ) -> Block:
        """The rows of a table or of a stage."""
        self._keys[name] = key
        return read(name, table, columns, key, all_rows=all_rows)

    def close(self, block: Block, columns: dict[str, Node], name: str) -> tuple[Node, ...]:
        """Add a stage with these columns and those of its key, which are returned."""
        if not block.inputs:
            raise Untraceable("rows of no table", "read a table")
        scope = block.scope or ()
        is_last = name == self._view
        key = self._key_of(block, columns if is_last else None)
        names = tuple(self.column(attribute, columns) for attribute in key)
        prefix = SCOPE if is_last else ""
        by = tuple(self.column(attribute, columns, prefix) for attribute in scope)
        function = StageFunction(block, list(columns.items()), f"{name} of {self._view}")
        declared = () if by else block.references
        stage = View(name, names, block.inputs, declared, function, by=by, within=block.within)
        self.closed.append(replace(stage, by_table=block.parts) if by else stage)
        return key

    def _key_of(self, block: Block, columns: Mapping[str, Node] | None) -> tuple[Node, ...]:
        """What names a row among those of all partitions, if possible by what a view returns: ``columns``."""
        scope = block.scope or ()
        returned = None if columns is None else set(map(self.source, columns.values()))
        if block.single and (returned is None or set(map(self.source, scope)) <= returned):
            return scope
        if block.key and (block.is_of_all or self._names_all(block)):
            return block.key
        return self.different((*block.key, *scope))

    def _names_all(self, block: Block) -> bool:
        """Whether the key of a row names the rows that it is made of: its scope follows from these."""
        named = set(map(self.source, block.key))
        return all(set(map(self.source, self._keys[name])) <= named for name in block.inputs)

    def column(self, attribute: Node, columns: dict[str, Node], prefix: str = "") -> str:
        """The column that has the value of an attribute; it is added under a free name if none has it."""
        for column, other in columns.items():
            if self.source(other) == self.source(attribute):
                return column
        name, taken = f"{prefix}{usable(attribute.name)}", {column.lower() for column in columns}
        while name.lower() in taken:
            name += "_"
        columns[name] = attribute
        return name

    def different(self, attributes: Sequence[Node]) -> tuple[Node, ...]:
        """Attributes, of which no two are one under two names."""
        return tuple({self.source(a): a for a in reversed(attributes)}.values())[::-1]

    def different_pairs(self, pairs: Sequence[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
        """Pairs of attributes, of which no two have the same on one side."""
        different, seen = list[tuple[Node, Node]](), list[tuple[int, ...]]()
        for pair in pairs:
            sources = tuple(map(self.source, pair))
            if not any(a == b for known in seen for a, b in zip(sources, known, strict=True)):
                seen.append(sources)
                different.append(pair)
        return different

    def source(self, attribute: Node) -> int:
        """The number of the attribute that one is under another name."""
        while attribute.id in self._aliased:
            attribute = self._aliased[attribute.id]
        return attribute.id


def usable(name: str) -> str:
    """A name for a column: that of an expression is its text, ``sum(price)``."""
    if is_column(name):
        return name
    plain = re.sub(r"\W+", "_", name).strip("_")[:_LONGEST]
    return plain if plain[:1].isalpha() else f"c_{plain}"


def _aliased(plan: Node) -> dict[int, Node]:
    """Every attribute of a plan that is another one under a name."""
    found = {id: one for below in (*plan.children, *plan.subqueries) for id, one in _aliased(below).items()}
    for argument in ("projectList", "aggregateExpressions"):
        found |= {one.id: one.bare for one in plan.all(argument) if one.kind == "Alias" and one.bare.is_attribute}
    # A union has the attributes of its first part, which are others in the next parts.
    united = {a.id for a in plan.output} if plan.kind == "Union" else set()
    return {id: one for id, one in found.items() if id not in united}
