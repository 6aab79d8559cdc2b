"""As much of PromQL as alert rules need, evaluated over samples: the parser is Prometheus' grammar, the rest is here.

`increase` and `delta` take the last value minus the first one of their range, without Prometheus' extrapolation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser as promql

STALE_SECONDS = 300.0
Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]

_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "^": operator.pow}
_COMPARED = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq,
             "!=": operator.ne}  # fmt: skip
_OVER_TIME = {
    "increase": lambda values: values[-1] - values[0],
    "delta": lambda values: values[-1] - values[0],
    "min_over_time": min,
}
_AGGREGATED = {"max": max, "min": min, "sum": sum, "count": len}


@dataclass(frozen=True)
class Series:
    """A metric's values over time, in seconds."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


def evaluate(expression: str, series: Sequence[Series], *, at: float) -> Vector | float:
    """Return the value of an expression at a moment."""
    return _Evaluation(series, at).of(promql.parse(expression))


class _Evaluation:
    def __init__(self, series: Sequence[Series], at: float) -> None:
        self._series, self._at = series, at

    def of(self, node: Any) -> Vector | float:
        return getattr(self, f"_{type(node).__name__}")(node)

    def _NumberLiteral(self, node: Any) -> float:
        return node.val

    def _ParenExpr(self, node: Any) -> Vector | float:
        return self.of(node.expr)

    def _VectorSelector(self, node: Any) -> Vector:
        found = {}
        for one in self._chosen(node):
            points = [value for time, value in one.points if self._at - STALE_SECONDS < time <= self._at]
            if points:
                found[_labels(one.labels)] = points[-1]
        return found

    def _Call(self, node: Any) -> Vector | float:
        if node.func.name == "time":
            return self._at
        (matrix,) = node.args
        since, found = self._at - matrix.range.total_seconds(), {}
        for one in self._chosen(matrix.vector_selector):
            values = [value for time, value in one.points if since < time <= self._at]
            if len(values) > 1 or (values and node.func.name == "min_over_time"):
                found[_labels(one.labels)] = float(_OVER_TIME[node.func.name](values))
        return found

    def _AggregateExpr(self, node: Any) -> Vector:
        vector, groups = self.of(node.expr), dict[Labels, list[float]]()
        kept = [] if node.modifier is None else node.modifier.labels
        for labels, value in vector.items():
            groups.setdefault(tuple(pair for pair in labels if pair[0] in kept), []).append(value)
        return {labels: float(_AGGREGATED[str(node.op)](values)) for labels, values in groups.items()}

    def _BinaryExpr(self, node: Any) -> Vector | float:
        left, right, sign = self.of(node.lhs), self.of(node.rhs), str(node.op)
        if sign in ("and", "unless"):
            there = {self._key(node, labels) for labels in right}
            return {at: value for at, value in left.items() if (self._key(node, at) in there) == (sign == "and")}
        if isinstance(left, dict) and isinstance(right, dict):
            return self._matched(node, left, right, sign)
        if isinstance(left, dict):
            return _each(left, lambda value: (value, right), sign)
        if isinstance(right, dict):
            return _each(right, lambda value: (left, value), sign)
        return _ARITHMETIC[sign](left, right)

    def _matched(self, node: Any, left: Vector, right: Vector, sign: str) -> Vector:
        many_right = str(node.modifier.card).endswith("OneToMany")
        many, one = (right, left) if many_right else (left, right)
        by_key = {self._key(node, labels): value for labels, value in one.items()}
        found = {}
        for labels, value in many.items():
            if (key := self._key(node, labels)) in by_key:
                sides = (by_key[key], value) if many_right else (value, by_key[key])
                found[labels] = _ARITHMETIC[sign](*sides)
        return found

    def _key(self, node: Any, labels: Labels) -> Labels:
        matching = node.modifier.matching if node.modifier else None
        if matching is None:
            return labels
        named = str(matching.type).endswith("Include")
        return tuple(pair for pair in labels if (pair[0] in matching.labels) == named)

    def _chosen(self, selector: Any) -> list[Series]:
        tests = [(one.name, str(one.op), one.value) for one in selector.matchers.matchers]
        named = [one for one in self._series if one.name == selector.name]
        return [one for one in named if all(_matches(one.labels.get(name, ""), op, v) for name, op, v in tests)]


def _each(vector: Vector, sides: Any, sign: str) -> Vector:
    if sign in _COMPARED:
        return {labels: value for labels, value in vector.items() if _COMPARED[sign](*sides(value))}
    return {labels: _ARITHMETIC[sign](*sides(value)) for labels, value in vector.items()}


def _matches(found: str, op: str, wanted: str) -> bool:
    equal = bool(re.fullmatch(wanted, found)) if op.endswith("Re") else found == wanted
    return equal != ("Not" in op)


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
