"""Which columns of a view hold values of a person: those that are made of a personal column, in whatever way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from projections.planning.plans import Node, operators, role

_BY_PLACE = ("Union", "Intersect", "Except")  # whose columns are those of each input, in their order


def personal_columns(plan: Node, tables: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The names of the personal columns in a plan's rows; ``tables`` has those of each parameter.

    A value counts that is computed from a personal one. Which rows there are does not, nor whether there are some.
    """
    traced = _Traced(plan, tables)
    personal = traced.ids(plan, frozenset())
    return frozenset(column.name for column in plan.output if column.id in personal)


class _Traced:
    def __init__(self, plan: Node, tables: Mapping[str, Collection[str]]) -> None:
        self._tables = tables
        self._known: dict[tuple[int, frozenset[int]], frozenset[int]] = {}
        self._definitions = {k: one for operator in operators(plan) for k, one in operator.definitions.items()}

    def ids(self, node: Node, around: frozenset[int]) -> frozenset[int]:
        """The attributes with a person's values in an operator; ``around`` are those of the rows around a subquery."""
        if node.kind == "CTERelationRef":
            number = node.arguments["cteId"], around
            if number not in self._known:  # a query of WITH may be read many times
                self._known[number] = self.ids(self._definitions[number[0]], around)
            return _by_place(self._definitions[number[0]], self._known[number], node)
        if not node.children and (table := role(node)) is not None:
            named = self._tables[table]
            return frozenset(column.id for column in node.output if column.name in named)
        children = [(child, self.ids(child, around)) for child in node.children]
        found = around.union(*(personal for _, personal in children))
        found = found.union(*(self.ids(plan, found) for plan in node.subqueries))
        if node.kind in _BY_PLACE:
            found = found.union(*(_by_place(child, personal, node) for child, personal in children))
        return found | self._made(node, found)

    def _made(self, node: Node, personal: frozenset[int]) -> frozenset[int]:
        """What an operator makes of personal values: by name, or as columns of its own, of which all count."""
        expressions = list(node.expressions)
        named = [name for one in expressions for name in _names(one)]
        below = {column.id for plan in (*node.children, *node.subqueries) for column in plan.output}
        own = {column.id for column in node.output} - below - {name.id for name in named}
        reads = any(map(partial(_reads, personal), expressions)) if expressions else bool(personal)
        return frozenset(name.id for name in named if _reads(personal, name)).union(own if reads else ())


def _by_place(below: Node, personal: frozenset[int], node: Node) -> frozenset[int]:
    """The columns of an operator whose places are those of personal ones below it."""
    return frozenset(to.id for of, to in zip(below.output, node.output, strict=True) if of.id in personal)


def _names(expression: Node) -> Iterator[Node]:
    if expression.kind == "Alias":
        yield expression
    for child in expression.children:
        yield from _names(child)


def _reads(personal: frozenset[int], expression: Node) -> bool:
    return not personal.isdisjoint(_read(expression))


def _read(expression: Node) -> Iterator[int]:
    """The attributes that an expression is made of: of a subquery its columns, and those of the row around it."""
    if expression.is_attribute:
        yield expression.id
    if expression.kind == "OuterReference":
        yield from _read(expression.one("e"))
    for plan in expression.all("plan"):
        yield from (column.id for column in plan.output)
    for child in expression.children:
        yield from _read(child)
