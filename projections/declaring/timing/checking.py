"""Patterns held against the columns of the rows that they are to match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from projections.declaring.columns import ColumnType
from projections.declaring.event_fields import FieldKind, check_leaf, kind_at, paths, row_schema
from projections.declaring.predicates import Predicate, family_of, leaves
from projections.declaring.timing.operands import (
    PREVIOUS,
    Compared,
    Computed,
    Fixed,
    Missing,
    OfRow,
    Taken,
    Term,
    terms,
)
from projections.declaring.timing.patterns import Pattern
from projections.errors import InvalidDefinition, InvalidPredicate

_NUMBERS: Final = ("total", "average")
_ORDERED: Final = ("text", "number", "date", "moment")


def columns_of(pattern: Pattern) -> list[str]:
    """The columns that conditions look at, those of the row before by their names here, each once."""
    columns = [path[0] for one in pattern.conditions for leaf in leaves(one) for path in paths(leaf)]
    return list(dict.fromkeys([*columns, *columns_computed(pattern)]))


def columns_computed(pattern: Pattern) -> list[str]:
    """Those of them that are computed with, and those of aggregates over rows that a match has taken."""
    columns = []
    for one in (one for condition in pattern.conditions for one in terms(condition)):
        columns += [one.path[0]] if isinstance(one, OfRow) else []
        columns += [one.column] if isinstance(one, Taken) and one.column is not None else []
    return list(dict.fromkeys(columns))


def own_name(column: str) -> str:
    """The name of the column of which one is the value in the row before."""
    return column.removeprefix(PREVIOUS)


def check_pattern(pattern: Pattern, columns: Mapping[str, ColumnType]) -> None:
    """Hold conditions against the types of the columns that they look at; InvalidPredicate, InvalidDefinition."""
    place = f"pattern {pattern.step}"
    schema = row_schema(columns).schema
    for condition in pattern.conditions:
        for leaf in leaves(condition):
            check_leaf(leaf, schema, place=f"{place}: {leaf}")
            if isinstance(leaf, Compared | Missing):
                _check_computed(leaf, schema, place=f"{place}: {leaf}")


def check_measure(measure: Taken, columns: Mapping[str, ColumnType]) -> None:
    """Hold a measure against the types of columns; InvalidDefinition."""
    _kind_of(measure, row_schema(columns).schema, place=f"measure {measure}")


def _check_computed(leaf: Predicate, schema: Mapping[str, Any], *, place: str) -> None:
    if isinstance(leaf, Missing):
        _kind_of(leaf.value, schema, place)
        return
    assert isinstance(leaf, Compared)  # noqa: S101 - the only other one
    left, right = (_kind_of(side, schema, place) for side in (leaf.left, leaf.right))
    if left.family != right.family or left.family == "other":
        raise InvalidPredicate(
            f"{leaf.left} is of kind {left.family}, and {leaf.right} of kind {right.family}",
            remedy="compare values of one kind: numbers, texts, times. Not lists or records",
            place=place,
        )
    if leaf.operator not in ("==", "!=") and left.family not in _ORDERED:
        raise InvalidPredicate(f"values of kind {left.family} have no order", remedy="use == or !=", place=place)


def _kind_of(term: Term, schema: Mapping[str, Any], place: str) -> FieldKind:
    match term:
        case OfRow(path):
            return kind_at(schema, path) or FieldKind("other")
        case Fixed(value):
            return FieldKind(family_of(value), "float" if isinstance(value, float) else "")
        case Taken():
            return _kind_of_taken(term, schema, place)
        case Computed(left, _, right):
            for side in (left, right):
                _require_exact(_kind_of(side, schema, place), str(side), place)
            return FieldKind("number")
    raise TypeError(f"{type(term).__name__} is no value of a condition")


def _kind_of_taken(term: Taken, schema: Mapping[str, Any], place: str) -> FieldKind:
    if term.function == "count" or term.column is None:
        return FieldKind("number", "whole")
    kind = kind_at(schema, (term.column,)) or FieldKind("other")
    if term.function in _NUMBERS:
        _require_exact(kind, f"column {term.column!r}", place)
    if term.function in ("least", "greatest") and kind.family not in _ORDERED:
        raise InvalidDefinition(
            f"{term} is of values of kind {kind.family}, which have no order", remedy="name another column", place=place
        )
    return kind


def _require_exact(kind: FieldKind, what: str, place: str) -> None:
    if kind.family == "number" and kind.number != "float":
        return
    of = "floating-point numbers" if kind.number == "float" else f"values of kind {kind.family}"
    raise InvalidDefinition(
        f"{what} has {of}, with which nothing is computed exactly",
        remedy="cast the column to a decimal before match_pattern, and write constants as Decimal('0.9')",
        place=place,
    )
