"""Predicates compiled to Python functions: what the embedded road runs, and the oracle of the Spark compilation.

Nothing is rewritten here: Python compares int, float and Decimal exactly by itself, texts by code point (the order of
their UTF-8 bytes, which is Spark's), and moments as moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from projections.declaring.predicates import (
    OPERATORS,
    Absence,
    Both,
    Comparison,
    Either,
    Family,
    FieldComparison,
    Membership,
    Negated,
    Path,
    Predicate,
    Prefix,
    TypeTest,
    family_of,
    plain,
)
from projections.errors import InvalidPredicate

Truth = bool | None
Matcher = Callable[[str, Mapping[str, Any]], Truth]


def matcher(predicate: Predicate) -> Matcher:
    """The function of an event's type name and plain values that a predicate means; None is unknown.

    The function raises InvalidPredicate for a record that holds a value of another family than the predicate's.
    """
    match predicate:
        case Both(left, right):
            return _both(matcher(left), matcher(right))
        case Either(left, right):
            return _either(matcher(left), matcher(right))
        case Negated(inner):
            return _negated(matcher(inner))
        case TypeTest(names):
            return lambda name, data: name in names
        case Absence(path):
            return lambda name, data: _value(data, path) is None
        case FieldComparison():
            return _between_fields(predicate)
        case _:
            return _with_constants(predicate)


def _both(left: Matcher, right: Matcher) -> Matcher:
    def both(name: str, data: Mapping[str, Any]) -> Truth:
        one, other = left(name, data), right(name, data)
        if one is False or other is False:
            return False
        return None if one is None or other is None else True

    return both


def _either(left: Matcher, right: Matcher) -> Matcher:
    def either(name: str, data: Mapping[str, Any]) -> Truth:
        one, other = left(name, data), right(name, data)
        if one or other:
            return True
        return None if one is None or other is None else False

    return either


def _negated(inner: Matcher) -> Matcher:
    def negated(name: str, data: Mapping[str, Any]) -> Truth:
        truth = inner(name, data)
        return None if truth is None else not truth

    return negated


def _between_fields(predicate: FieldComparison) -> Matcher:
    compare = OPERATORS[predicate.operator]

    def compared(name: str, data: Mapping[str, Any]) -> Truth:
        left, right = _value(data, predicate.left), _value(data, predicate.right)
        if left is None or right is None:
            return None
        _require(family_of(left), right, predicate, name)
        return bool(compare(left, right))

    return compared


def _with_constants(predicate: Predicate) -> Matcher:
    path, family, test = _test(predicate)

    def tested(name: str, data: Mapping[str, Any]) -> Truth:
        value = _value(data, path)
        if value is None:
            return None
        _require(family, value, predicate, name)
        return test(value)

    return tested


def _test(predicate: Predicate) -> tuple[Path, Family, Callable[[Any], bool]]:
    """The field that a predicate looks at, the family it must have, and the test of its value."""
    match predicate:
        case Comparison(path, symbol, value):
            compare, constant = OPERATORS[symbol], plain(value)
            return path, family_of(value), lambda actual: bool(compare(actual, constant))
        case Membership(path, values):
            constants = {plain(value) for value in values}
            return path, family_of(values[0]), lambda actual: actual in constants
        case Prefix(path, text):
            return path, "text", lambda actual: actual.startswith(text)
    raise TypeError(f"{type(predicate).__name__} is no predicate of this module")


def _value(data: Mapping[str, Any], path: Path) -> Any:
    """The value of a field, None where a record on the way is null or lacks it; a NaN is no value."""
    value: Any = data
    for name in path:
        if not isinstance(value, Mapping):
            raise _not_a_record(path)
        value = value.get(name)
        if value is None:
            return None
    return None if value != value else value


def _not_a_record(path: Path) -> InvalidPredicate:
    return InvalidPredicate(
        f"field {'.'.join(path)!r} looks into a value that is no record", remedy="name a field of a record"
    )


def _require(family: Family, value: object, predicate: Predicate, event: str) -> None:
    if family_of(value) != family:
        raise InvalidPredicate(
            f"a record of {event} holds {value!r}, which cannot be compared as a {family}",
            remedy="the field had another type when the record was written: let another predicate take those records",
            place=str(predicate),
        )
