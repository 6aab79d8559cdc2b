"""Conditions of an analysed plan taken apart: what must hold together, and the subqueries in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from projections.planning.plans import kind
from projections.planning.scala import items

MEETING: Final = ("INNER", "CROSS", "LEFT SEMI")
"""The joins whose condition holds for each of their rows."""

_NAMES: Final = {"Exists": "EXISTS", "ScalarSubquery": "a subquery", "LateralSubquery": "LATERAL"}


@dataclass(frozen=True)
class Subquery:
    """A subquery in an expression; of IN also the ``values`` that it looks for.

    ``truth``: only whether it is true counts, as in a filter, so that null is as good as false.
    """

    name: str
    plan: Any
    values: tuple[Any, ...] = ()
    truth: bool = False
    negated: bool = False


def conjuncts(condition: Any) -> list[Any]:
    """The parts of a condition that all must hold."""
    if kind(condition) == "And":
        return [part for side in items(condition.children()) for part in conjuncts(side)]
    return [condition]


def subqueries(expression: Any, *, truth: bool, negated: bool = False) -> Iterator[Subquery]:
    """The subqueries of an expression."""
    name, children = kind(expression), items(expression.children())
    if name == "InSubquery":
        values = items(expression.values())
        operator = "NOT IN" if negated else "IN"
        yield Subquery(operator, expression.query().plan(), tuple(values), truth, negated)
        children = values
    elif name in _NAMES:
        yield Subquery(_NAMES[name], expression.plan())
        return
    inner = (truth and name in ("And", "Or")) or _is_false_for_null(expression)
    for child in children:
        yield from subqueries(child, truth=inner, negated=name == "Not")


def _is_false_for_null(expression: Any) -> bool:
    """Whether an expression is ``coalesce(…, false)``."""
    children = items(expression.children())
    return kind(expression) == "Coalesce" and len(children) == 2 and str(children[1].sql()) == "false"
