"""Conditions of a pattern as functions of a row and of what a match has taken before it.

What looks at the row alone is decided before, for all rows at once: such parts are collected in ``Deciding.before``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any, Final

from projections.declaring.predicates import OPERATORS, Both, Either, Negated, Predicate, plain
from projections.declaring.timing.operands import (
    Compared,
    Computed,
    Fixed,
    Function,
    Missing,
    OfRow,
    Sign,
    Slot,
    Taken,
    Term,
    is_plain,
)

Truth = bool | None


@dataclass(frozen=True)
class Partition:
    """The rows of a partition in their order, or those of them that count.

    ``numbers`` are their places among all rows of it, ``times`` microseconds. ``decided`` has the truth of each part
    that was decided before, ``values`` the columns that conditions look at.
    """

    numbers: Sequence[int]
    times: Sequence[int]
    decided: Sequence[Sequence[Truth]]
    values: Mapping[str, Sequence[Any]]


State = Any  # hashable: two matches in the making of equal states have one future
States = tuple[State, ...]
Test = Callable[[Partition, int, States], Truth]
Value = Callable[[Partition, int, States], Any]


@dataclass
class Deciding:
    """Makes tests of conditions; ``slots`` says what the states are of."""

    slots: Sequence[Slot]
    before: list[Predicate] = field(default_factory=list)

    def test(self, condition: Predicate) -> Test:
        """The test of a condition."""
        if is_plain(condition):
            return self._decided(condition)
        match condition:
            case Both(left, right):
                return _both(self.test(left), self.test(right))
            case Either(left, right):
                return _either(self.test(left), self.test(right))
            case Negated(inner):
                return _negated(self.test(inner))
            case Compared():
                return self._compared(condition)
            case Missing(value):
                operand = self._value(value)
                return lambda rows, at, states: operand(rows, at, states) is None
        raise TypeError(f"{type(condition).__name__} is no condition of a pattern")

    def _decided(self, condition: Predicate) -> Test:
        number = len(self.before)
        self.before.append(condition)
        return lambda rows, at, states: rows.decided[number][at]

    def _compared(self, condition: Compared) -> Test:
        left, right = self._value(condition.left), self._value(condition.right)
        compare = OPERATORS[condition.operator]

        def compared(rows: Partition, at: int, states: States) -> Truth:
            one, other = left(rows, at, states), right(rows, at, states)
            if one is None or other is None:
                return None
            if isinstance(one, Fraction) or isinstance(other, Fraction):
                one, other = _rational(one), _rational(other)
            return bool(compare(one, other))

        return compared

    def _value(self, term: Term) -> Value:
        match term:
            case OfRow(path):
                return lambda rows, at, states: _part(rows.values[path[0]][at], path[1:])
            case Fixed(value):
                constant = plain(value)
                return lambda rows, at, states: constant
            case Taken():
                number, function = self.slots.index(term.slot), term.function
                return lambda rows, at, states: value_of(function, states[number])
            case Computed(left, sign, right):
                return _computed(self._value(left), sign, self._value(right))
        raise TypeError(f"{type(term).__name__} is no value of a condition")


def _both(left: Test, right: Test) -> Test:
    def both(rows: Partition, at: int, states: States) -> Truth:
        one = left(rows, at, states)
        if one is False:
            return False
        other = right(rows, at, states)
        return other if one or other is False else None

    return both


def _either(left: Test, right: Test) -> Test:
    def either(rows: Partition, at: int, states: States) -> Truth:
        one = left(rows, at, states)
        if one:
            return True
        other = right(rows, at, states)
        return other if one is False or other else None

    return either


def _negated(inner: Test) -> Test:
    def negated(rows: Partition, at: int, states: States) -> Truth:
        truth = inner(rows, at, states)
        return None if truth is None else not truth

    return negated


_SIGNS: Final[Mapping[Sign, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": lambda one, other: one + other, "-": lambda one, other: one - other, "*": lambda one, other: one * other,
}  # fmt: skip


def _computed(left: Value, sign: Sign, right: Value) -> Value:
    compute = _SIGNS[sign]

    def computed(rows: Partition, at: int, states: States) -> Fraction | None:
        one, other = left(rows, at, states), right(rows, at, states)
        return None if one is None or other is None else compute(Fraction(one), Fraction(other))

    return computed


def _rational(value: Any) -> Any:
    """Decimals and fractions are not compared by Python; floats and fractions are, exactly."""
    return Fraction(value) if isinstance(value, Decimal) else value


def _part(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = None if value is None else value.get(name)
    return None if value != value else value


# Sums of decimals of 38 digits, of as many rows as there may be: never rounded.
_EXACT: Final = Context(prec=76, traps=[Inexact])


def begun(function: Function) -> State:
    """The state before the first row."""
    return 0 if function == "count" else (0, 0) if function == "average" else ()


def moved(function: Function, state: State, value: Any) -> State:
    """The state after a row with a value; a NaN is none."""
    if function == "last" or (function == "first" and not state):
        return (value,)
    if value is None or value != value or function == "first":
        return state
    return _MOVED[function](state, value)


def value_of(function: Function, state: State) -> Any:
    """The value that a state stands for: None where there is none."""
    if function == "count":
        return state
    if function == "average":
        return Fraction(state[0]) / state[1] if state[1] else None
    value = state[0] if state else None
    return None if value != value else value


def added(left: int | Decimal, right: int | Decimal) -> int | Decimal:
    """A sum that is exact."""
    return left + right if isinstance(left, int) and isinstance(right, int) else _EXACT.add(left, right)


_MOVED: Final[Mapping[str, Callable[[State, Any], State]]] = {
    "count": lambda state, value: state + 1,
    "total": lambda state, value: (added(state[0], value) if state else value,),
    "average": lambda state, value: (added(state[0], value), state[1] + 1),
    "least": lambda state, value: (min(state[0], value) if state else value,),
    "greatest": lambda state, value: (max(state[0], value) if state else value,),
}
