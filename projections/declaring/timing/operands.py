"""What conditions of a pattern see besides the current row: the row before it, and the rows that labels have taken.

field("price") < previous("price")                     the row before it in the partition
field("amount") > 10 * rows_of("small").average("amount")    the rows of this match so far
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Literal

from projections.declaring.predicates import (
    Comparison,
    FieldReference,
    Operand,
    Operator,
    Path,
    Predicate,
    Relative,
    field,
    leaves,
)
from projections.errors import InvalidDefinition, InvalidPredicate

Function = Literal["first", "last", "count", "total", "average", "least", "greatest"]
Sign = Literal["+", "-", "*"]
Slot = tuple[tuple[str, ...], Function, str | None]

PREVIOUS: Final = "_previous_"  # before the name of a column: no column of a table begins so


class Term(Operand):
    """A value that a condition computes; compare it, or add, subtract and multiply it."""

    def compared_with(self, path: Path, symbol: Operator) -> Predicate:
        """A field against it."""
        return Compared(OfRow(path), symbol, self)

    def _compared(self, symbol: Operator, other: object) -> Predicate:
        return Compared(self, symbol, term(other))

    def __add__(self, other: object) -> Term:
        return Computed(self, "+", term(other))

    def __radd__(self, other: object) -> Term:
        return Computed(term(other), "+", self)

    def __sub__(self, other: object) -> Term:
        return Computed(self, "-", term(other))

    def __rsub__(self, other: object) -> Term:
        return Computed(term(other), "-", self)

    def __mul__(self, other: object) -> Term:
        return Computed(self, "*", term(other))

    def __rmul__(self, other: object) -> Term:
        return Computed(term(other), "*", self)

    def __bool__(self) -> bool:
        raise InvalidPredicate(f"{self} alone is no condition", remedy="compare it, or write .is_null()")

    def is_null(self) -> Predicate:
        """There is no value: no row has been taken yet, or none that has one."""
        return Missing(self)


@dataclass(frozen=True, eq=False)
class OfRow(Term):
    """A column of the row at hand."""

    path: Path

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, eq=False)
class Fixed(Term):
    """A constant."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False)
class Taken(Term):
    """What a function makes of a column of the rows that ``labels`` have taken, of all labels if it names none."""

    labels: tuple[str, ...]
    function: Function
    column: str | None

    @property
    def slot(self) -> Slot:
        """What two equal ones have in common."""
        return self.labels, self.function, self.column

    def __str__(self) -> str:
        of = ", ".join(map(repr, self.labels))
        return f"rows_of({of}).{self.function}({'' if self.column is None else repr(self.column)})"


@dataclass(frozen=True, eq=False)
class Computed(Term):
    """A sum, difference or product, which is exact."""

    left: Term
    sign: Sign
    right: Term

    def __str__(self) -> str:
        return f"({self.left} {self.sign} {self.right})"


@dataclass(frozen=True, eq=False)
class Compared(Relative):
    """Two values that a condition computes."""

    left: Term
    operator: Operator
    right: Term

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, eq=False)
class Missing(Relative):
    """A computed value is null."""

    value: Term

    def __str__(self) -> str:
        return f"{self.value} is null"


class Rows(ABC):
    """The rows of a match that some labels have taken: so far, in a condition; all of them, in a measure."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The labels; none for the rows of all."""

    def first(self, column: str) -> Taken:
        """The column's value in the first of them."""
        return self._taken("first", column)

    def last(self, column: str) -> Taken:
        """The column's value in the last of them."""
        return self._taken("last", column)

    def count(self, column: str | None = None) -> Taken:
        """How many there are, or how many have a value in the column."""
        return Taken(self.names, "count", None if column is None else field(column).name)

    def total(self, column: str) -> Taken:
        """The sum of the column, of whole numbers or decimals."""
        return self._taken("total", column)

    def average(self, column: str) -> Taken:
        """The mean of the column, of whole numbers or decimals."""
        return self._taken("average", column)

    def least(self, column: str) -> Taken:
        """The least value of the column."""
        return self._taken("least", column)

    def greatest(self, column: str) -> Taken:
        """The greatest value of the column."""
        return self._taken("greatest", column)

    def _taken(self, function: Function, column: str) -> Taken:
        return Taken(self.names, function, _column(column))


@dataclass(frozen=True)
class RowsOf(Rows):
    """Made by `rows_of`."""

    labels: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels


def rows_of(*labels: str) -> RowsOf:
    """Name the rows of a match that labels have taken, of all labels by default.

    In a condition these are the rows before the current one: ``rows_of("small").last("amount")`` is null while
    ``small`` has taken none. In a measure they are those of the whole match.

    Examples:
        >>> up = label("up", field("price") < 2 * rows_of("start").first("price"))
        >>> measures = {"ended": rows_of().last("quoted_at")}
    """
    return RowsOf(tuple(dict.fromkeys(labels)))


def previous(column: str) -> FieldReference:
    """Name the column's value in the row before, in the partition's order. That row may be outside the match.

    Examples:
        >>> down = label("down", field("price") < previous("price"))
    """
    return FieldReference((PREVIOUS + _column(column),))


def term(value: object) -> Term:
    """What is computed with: a field, a constant, or another such value; InvalidPredicate."""
    if isinstance(value, Term):
        return value
    if isinstance(value, FieldReference):
        return OfRow(value.path)
    if value is None:
        raise InvalidPredicate("null is compared with nothing", remedy="write .is_null() on what may be null")
    checked = field("value") == value  # which refuses what no field can be compared with
    assert isinstance(checked, Comparison)  # noqa: S101 - fields and operands were taken above
    return Fixed(checked.value)


def is_plain(condition: Predicate) -> bool:
    """Whether a condition looks at nothing but the row, and the one before it."""
    return not any(isinstance(leaf, Relative) for leaf in leaves(condition))


def terms(condition: Predicate) -> list[Term]:
    """The values that a condition computes, those within others too."""
    sides: list[Term] = []
    for leaf in leaves(condition):
        match leaf:
            case Compared(left, _, right):
                sides += (left, right)
            case Missing(value):
                sides.append(value)
    return [one for side in sides for one in _within(side)]


def _within(value: Term) -> list[Term]:
    return [value, *_within(value.left), *_within(value.right)] if isinstance(value, Computed) else [value]


def _column(name: str) -> str:
    path = field(name).path
    if len(path) > 1:
        raise InvalidDefinition(
            f"{name!r} is a part of a column", remedy="select it as a column of its own before match_pattern"
        )
    return path[0]
