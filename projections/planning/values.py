"""Expressions of a view's plan: of which columns a value is one, which values are equal, and which are never null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from projections.planning.conjuncts import conjuncts
from projections.planning.paths import Condition, Origin, Origins
from projections.planning.plans import Node
from projections.planning.rows import Rows, any_of, equated

_IDENTITY: Final = ("tinyint", "smallint", "int", "bigint")  # casts among which change no value


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
