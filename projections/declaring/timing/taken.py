"""What is known of the rows that labels have taken: kept as the rows come, one state for each function of a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any, Final

from projections.declaring.timing.operands import Function

# Sums of decimals of 38 digits, of as many rows as there may be: never rounded.
_EXACT: Final = Context(prec=76, traps=[Inexact])

State = Any  # hashable: two matches in the making of equal states have one future


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
