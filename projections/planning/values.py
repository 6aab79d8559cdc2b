"""Expressions of a view's plan: of which columns a value is one, which values are equal, and which are never null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from projections.planning.conjuncts import conjuncts
from projections.planning.paths import Condition, Origin, Origins
from projections.planning.plans import is_attribute, kind
from projections.planning.rows import Rows, any_of, equated
from projections.planning.scala import items

_IDENTITY: Final = ("tinyint", "smallint", "int", "bigint")  # casts among which change no value


class Values:
    """The values of one view's expressions."""

    def condition(self, parts: Sequence[Any], left: Rows, right: Rows, *, outer: bool = False) -> Condition:
        """What parts of a condition say of two rows; ``outer``: the left one is that around a subquery."""
        pairs, either = [], []
        for part in parts:
            if kind(part) == "Or":
                sides = (conjuncts(side) for side in items(part.children()))
                either.append(tuple(self.condition(side, left, right, outer=outer) for side in sides))
                continue
            compared = self._compared(part, left, right)
            for ours, theirs in (compared, compared[::-1]) if compared else ():
                a = any_of([self.origins(e, left, outer=outer) for e in ours])
                b = any_of([self.origins(e, right) for e in theirs])
                if a and b:
                    pairs.append((a, b))
        return Condition(tuple(pairs), tuple(either))

    def _compared(self, part: Any, left: Rows, right: Rows) -> tuple[list[Any], list[Any]] | None:
        """The values of which one is equal to one of the others, and neither is null."""
        match kind(part):
            case "EqualTo":
                return [part.left()], [part.right()]
            case "EqualNullSafe" if any(
                self.is_present(e, rows) for e in items(part.children()) for rows in (left, right)
            ):
                return [part.left()], [part.right()]
            case "In":
                return [part.value()], list(items(part.list()))
        return None

    def origins(self, expression: Any, rows: Rows, *, outer: bool = False) -> Origins:
        """The columns of which the value of an expression is one."""
        if is_attribute(expression):
            return None if outer else rows.columns.get(expression.exprId().id())
        children = items(expression.children())
        match kind(expression):
            case "OuterReference":
                return rows.columns.get(expression.e().exprId().id()) if outer else None
            case "Literal":
                return frozenset() if expression.value() is None else None
            case "Alias":
                return self.origins(children[0], rows, outer=outer)
            case "Cast" if _keeps_value(expression.dataType(), children[0].dataType()):
                return self.origins(children[0], rows, outer=outer)
            case "Coalesce":
                return any_of([self.origins(child, rows, outer=outer) for child in children])
            case "If":
                return any_of([self.origins(child, rows, outer=outer) for child in children[1:]])
            case "CaseWhen":
                values = [branch._2() for branch in items(expression.branches())]  # noqa: SLF001 - a Scala pair
                otherwise = expression.elseValue()
                values += [otherwise.get()] if otherwise.isDefined() else []
                return any_of([self.origins(value, rows, outer=outer) for value in values])
            case "GetStructField":
                whole = self.origins(children[0], rows, outer=outer)
                part = str(expression.extractFieldName())
                return whole and frozenset(Origin(o.row, o.table, f"{o.column}.{part}") for o in whole)
        return None

    def narrowed(self, rows: Rows, parts: Sequence[Any]) -> Rows:
        """What is known of rows for which conditions hold: values that are equal, and not null."""
        present = set(rows.present)
        for part in parts:
            if kind(part) in ("IsNotNull", "EqualTo"):
                present |= {c.exprId().id() for c in items(part.children()) if is_attribute(c)}
        pairs = self.condition(parts, rows, rows).pairs
        return replace(rows, present=frozenset(present), same=equated(rows.same, pairs, only_right=False))

    def is_present(self, expression: Any, rows: Rows) -> bool:
        """Whether a value is never null: the key of a row that is there, or one that a filter has looked at."""
        inner = expression.e() if kind(expression) == "OuterReference" else expression
        return is_attribute(inner) and inner.exprId().id() in rows.present


def _keeps_value(to: Any, of: Any) -> bool:
    wide, narrow = str(to.simpleString()), str(of.simpleString())
    if {wide, narrow} <= set(_IDENTITY) or wide == narrow:
        return True
    return wide.startswith("decimal") and narrow.startswith("decimal") and to.scale() == of.scale()
