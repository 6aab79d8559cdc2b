"""Expressions of a plan: conditions taken apart, the subqueries in them, and of which values a value is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from projections.planning.plans import Node, operators
from projections.planning.refusals import Untraceable

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


def alternatives(expression: Node) -> Sequence[Node] | None:
    """The expressions of which the value of one is that of one, or null; None of a value that is computed."""
    children = expression.children
    match expression.kind:
        case "Literal" if expression.arguments.get("value") is None:
            return []
        case "Alias":
            return children
        case "Cast" if _keeps_value(expression.type, children[0].type):
            return children
        case "Coalesce":
            return children
        case "If":
            return children[1:]
        case "CaseWhen":
            return [*children[1::2], *(children[-1:] if len(children) % 2 else ())]
    return None


def _keeps_value(wide: str, narrow: str) -> bool:
    if {wide, narrow} <= set(_IDENTITY) or wide == narrow:
        return True
    scales = [kind.partition(",")[2] for kind in (wide, narrow) if kind.startswith("decimal(")]
    return len(scales) == 2 and scales[0] == scales[1]
