"""Expressions of an analysed plan: conditions taken apart, the subqueries in them, and what is known of values.

Of which columns a value is one, which values are equal, and which are never null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from projections.planning.plans import Node, operators
from projections.planning.rows import Condition, Origin, Origins, Rows, Untraceable, any_of, equated

MEETING: Final = ("INNER", "CROSS", "LEFT SEMI")
"""The joins whose condition holds for each of their rows."""

_NAMES: Final = {"Exists": "EXISTS", "ScalarSubquery": "a subquery", "LateralSubquery": "LATERAL"}
_FLOATS: Final = re.compile(r"(^|[<:,])(double|float)(?=$|[,>])")  # in a type, and not the name of a field
_COLLATED: Final = re.compile(r"\bstring collate (?!UTF8_BINARY\b(?!_))")
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "decimal")  # which have one zero
_ZEROS: Final = ("0.0D", "CAST(0 AS DOUBLE)", "CAST(0 AS FLOAT)", "CAST(0.0 AS FLOAT)")
_IDENTITY: Final = ("tinyint", "smallint", "int", "bigint")  # casts among which change no value


@dataclass(frozen=True)
class Subquery:
    """A subquery in an expression; of IN also the ``values`` that it looks for.

    ``truth``: only whether it is true counts, as in a filter, so that null is as good as false. ``asked``: that counts
    of it or of its negation. Anywhere else Spark has false for IN where SQL has null.
    """

    name: str
    plan: Node
    values: tuple[Node, ...] = ()
    truth: bool = False
    negated: bool = False
    asked: bool = False


def conditions(operator: Node) -> list[Node]:
    """The parts of an operator's condition that all must hold; none where it has no condition."""
    return [part for condition in operator.all("condition") for part in conjuncts(condition)]


def conjuncts(condition: Node) -> list[Node]:
    """The parts of a condition that all must hold."""
    if condition.kind == "And":
        return [part for side in condition.children for part in conjuncts(side)]
    return [condition]


def subqueries(expression: Node, *, truth: bool, negated: bool = False, asked: bool = False) -> Iterator[Subquery]:
    """The subqueries of an expression."""
    name, children = expression.kind, tuple(expression.children)
    if name == "InSubquery":
        values = expression.all("values")
        operator = "NOT IN" if negated else "IN"
        yield Subquery(operator, expression.one("query").one("plan"), values, truth, negated, truth or asked)
        children = values
    elif name in _NAMES:
        yield Subquery(_NAMES[name], expression.one("plan"))
        return
    inner = (truth and name in ("And", "Or")) or _is_false_for_null(expression)
    for child in children:
        yield from subqueries(child, truth=inner, negated=name == "Not", asked=truth and name == "Not")


def require_no_null_answer(plan: Node) -> None:
    """Refuse IN as a value: where SQL has null, Spark has false; Untraceable."""
    for node in operators(plan):
        truth = node.kind in ("Filter", "Join")
        for one in (one for part in node.expressions for one in subqueries(part, truth=truth)):
            if one.values and not one.asked:
                raise false_for_null(one, one.values[0])


def false_for_null(subquery: Subquery, nullable: Node) -> Untraceable:
    """The refusal of IN as a value, one side of which may be null."""
    return Untraceable(
        f"{subquery.name} as a value, which is null where {nullable.sql} is null, and false in Spark",
        f"write EXISTS (SELECT 1 FROM … WHERE x = {subquery.values[0].sql}), which is never null",  # noqa: S608
    )


def _is_false_for_null(expression: Node) -> bool:
    """Whether an expression is ``coalesce(…, false)``."""
    children = expression.children
    return expression.kind == "Coalesce" and len(children) == 2 and children[1].arguments.get("value") == "false"


def require_one_of_equal_ones(value: Node, aggregate: str) -> None:
    """Refuse a value that an aggregate compares, and that differs from equal ones; Untraceable."""
    if not differs_from_equal_ones(value):
        return
    if _COLLATED.search(value.type):
        raise Untraceable(
            f"{aggregate} of texts that are equal in a collation and differ",
            f"compare the texts themselves, {aggregate}(x COLLATE UTF8_BINARY)",
        )
    raise Untraceable(
        f"{aggregate} of floating-point numbers, of which 0.0 and -0.0 are equal",
        f"add zero, {aggregate}(x + 0D), so that -0.0 and 0.0 are one value",
    )


def require_no_equal_ones(values: Sequence[Node], what: str) -> None:
    """Refuse rows brought together (``what``) by values that are equal and differ. Untraceable.

    Which of them stands for all is chance.
    """
    if any(map(differs_from_equal_ones, values)):
        raise Untraceable(
            f"{what} by texts that are equal in a collation, or by 0.0 and -0.0, which are equal and differ",
            "group by the texts themselves, x COLLATE UTF8_BINARY, or by numbers with zero added, GROUP BY x + 0D",
        )


def differs_from_equal_ones(value: Node) -> bool:
    """Whether a value may differ from another one that is equal to it, as 0.0 and -0.0 or texts of a collation do.

    Which of them comes first is chance.
    """
    if value.kind == "CreateNamedStruct":
        return any(map(differs_from_equal_ones, value.children[1::2]))
    if _has_one_zero(value):
        return False
    type_name = value.type
    return _FLOATS.search(type_name) is not None or _COLLATED.search(type_name) is not None


def _has_one_zero(value: Node) -> bool:
    """Whether the value is ``x + 0D``, which is 0.0 of both zeros, or was a number of another kind."""
    if value.kind == "Cast":
        return value.children[0].type.startswith(_NUMBERS) and not value.type.startswith("string")
    return value.kind == "Add" and any(side.sql in _ZEROS for side in value.children)


class Values:
    """The values of one view's expressions."""

    def condition(self, parts: Sequence[Node], left: Rows, right: Rows, *, outer: bool = False) -> Condition:
        """What parts of a condition say of two rows; ``outer``: the left one is that around a subquery."""
        pairs, either = [], []
        for part in parts:
            if part.kind == "Or":
                sides = (conjuncts(side) for side in part.children)
                either.append(tuple(self.condition(side, left, right, outer=outer) for side in sides))
                continue
            compared = self._compared(part, left, right)
            for ours, theirs in (compared, compared[::-1]) if compared else ():
                a = any_of([self.origins(e, left, outer=outer) for e in ours])
                b = any_of([self.origins(e, right) for e in theirs])
                if a and b:
                    pairs.append((a, b))
        return Condition(tuple(pairs), tuple(either))

    def _compared(self, part: Node, left: Rows, right: Rows) -> tuple[list[Node], list[Node]] | None:
        """The values of which one is equal to one of the others, and neither is null."""
        match part.kind:
            case "EqualTo":
                return [part.one("left")], [part.one("right")]
            case "EqualNullSafe" if any(self.is_present(e, rows) for e in part.children for rows in (left, right)):
                return [part.one("left")], [part.one("right")]
            case "In":
                return [part.one("value")], list(part.all("list"))
        return None

    def origins(self, expression: Node, rows: Rows, *, outer: bool = False) -> Origins:
        """The columns of which the value of an expression is one."""
        if expression.is_attribute:
            return None if outer else rows.columns.get(expression.id)
        children = expression.children
        match expression.kind:
            case "OuterReference":
                return rows.columns.get(expression.one("e").id) if outer else None
            case "Literal":
                return frozenset() if expression.arguments.get("value") is None else None
            case "Alias":
                return self.origins(children[0], rows, outer=outer)
            case "Cast" if _keeps_value(expression.type, children[0].type):
                return self.origins(children[0], rows, outer=outer)
            case "Coalesce":
                return any_of([self.origins(child, rows, outer=outer) for child in children])
            case "If":
                return any_of([self.origins(child, rows, outer=outer) for child in children[1:]])
            case "CaseWhen":
                values = [*children[1::2], *(children[-1:] if len(children) % 2 else ())]
                return any_of([self.origins(value, rows, outer=outer) for value in values])
            case "GetStructField":
                whole = self.origins(children[0], rows, outer=outer)
                part = str(expression.jvm.extractFieldName())
                return whole and frozenset(Origin(o.row, o.table, f"{o.column}.{part}") for o in whole)
        return None

    def narrowed(self, rows: Rows, parts: Sequence[Node]) -> Rows:
        """What is known of rows for which conditions hold: values that are equal, and not null."""
        present = set(rows.present)
        for part in parts:
            if part.kind in ("IsNotNull", "EqualTo"):
                present |= {c.id for c in part.children if c.is_attribute}
        pairs = self.condition(parts, rows, rows).pairs
        return replace(rows, present=frozenset(present), same=equated(rows.same, pairs, only_right=False))

    def is_present(self, expression: Node, rows: Rows) -> bool:
        """Whether a value is never null: the key of a row that is there, or one that a filter has looked at."""
        inner = expression.one("e") if expression.kind == "OuterReference" else expression
        return inner.is_attribute and inner.id in rows.present


def _keeps_value(wide: str, narrow: str) -> bool:
    if {wide, narrow} <= set(_IDENTITY) or wide == narrow:
        return True
    scales = [kind.partition(",")[2] for kind in (wide, narrow) if kind.startswith("decimal(")]
    return len(scales) == 2 and scales[0] == scales[1]
