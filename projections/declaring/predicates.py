"""Predicates over one event: a small expression tree, written with operators, compiled to Spark and to Python.

    (field("amount") > 900) & ~field("address.country").is_in(["DE", "FR"]) | of_type(Payment.Disputed)

Truth has three values, as in SQL: a comparison with a value that is not there is unknown, and unknown does not match. A
field that an event's record lacks is not there, whatever default its class has; nor is a floating-point NaN. Numbers
are compared exactly, whatever types the two sides have. ``&``, ``|`` and ``~`` bind tighter than comparisons: write
parentheses.
"""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal
from uuid import UUID

from eventstore.errors import InvalidEventData
from eventstore.event_types import event_type_of
from eventstore.fields.conversions import aware_utc, enum_texts
from projections.errors import InvalidPredicate

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
Family = Literal["text", "number", "flag", "date", "moment", "uuid", "other"]
Path = tuple[str, ...]
Constant = str | int | float | bool | Decimal | date | datetime | UUID | Enum

OPERATORS: Final[Mapping[Operator, Callable[[Any, Any], Any]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
# Subclasses before their bases: True is an int, and a datetime is a date.
_FAMILIES: Final[tuple[tuple[type, Family], ...]] = (
    (bool, "flag"), (str, "text"), (int, "number"), (float, "number"), (Decimal, "number"), (datetime, "moment"),
    (date, "date"), (UUID, "uuid"),
)  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class Predicate:
    """A condition on one event. Combine with ``&``, ``|``, ``~``.

    Examples:
        >>> suspicious = (field("amount") > 900) & ~field("country").is_in(["DE", "FR"])
        >>> payment_branches = branches(Payment, {"suspicious": suspicious}, otherwise="validated")
    """

    def __and__(self, other: Predicate) -> Predicate:
        return Both(self, required(other))

    def __or__(self, other: Predicate) -> Predicate:
        return Either(self, required(other))

    def __invert__(self) -> Predicate:
        return Negated(self)

    def __bool__(self) -> bool:
        raise InvalidPredicate(
            "a predicate is neither true nor false before it meets an event",
            remedy="combine predicates with &, | and ~ instead of and, or, not and chained comparisons, in parentheses",
            place=str(self),
        )


@dataclass(frozen=True)
class Both(Predicate):
    """Both hold."""

    left: Predicate
    right: Predicate

    def __str__(self) -> str:
        return f"({self.left} & {self.right})"


@dataclass(frozen=True)
class Either(Predicate):
    """At least one holds."""

    left: Predicate
    right: Predicate

    def __str__(self) -> str:
        return f"({self.left} | {self.right})"


@dataclass(frozen=True)
class Negated(Predicate):
    """The inner one is false; unknown stays unknown."""

    inner: Predicate

    def __str__(self) -> str:
        return f"~({self.inner})"


@dataclass(frozen=True)
class Comparison(Predicate):
    """A field against a constant."""

    path: Path
    operator: Operator
    value: Constant

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.operator} {plain(self.value)!r}"


@dataclass(frozen=True)
class FieldComparison(Predicate):
    """A field against another field of the same event."""

    left: Path
    operator: Operator
    right: Path

    def __str__(self) -> str:
        return f"{'.'.join(self.left)} {self.operator} {'.'.join(self.right)}"


@dataclass(frozen=True)
class Membership(Predicate):
    """A field is one of some constants."""

    path: Path
    values: tuple[Constant, ...]

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} in {[plain(value) for value in self.values]!r}"


@dataclass(frozen=True)
class Prefix(Predicate):
    """A text begins with another."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} starts with {self.text!r}"


@dataclass(frozen=True)
class Absence(Predicate):
    """A field has no value."""

    path: Path

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} is null"


@dataclass(frozen=True)
class TypeTest(Predicate):
    """The event is of one of some types, given by their stable names."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"type in {list(self.names)!r}"


class Relative(Predicate):
    """A condition that looks at other rows too, which patterns alone have."""


class Comparable(ABC):
    """A value of which operators make predicates."""

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]  # a predicate is what == is for here
        return self._compared("==", other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._compared("!=", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> Predicate:
        return self._compared("<", other)

    def __le__(self, other: object) -> Predicate:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Predicate:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Predicate:
        return self._compared(">=", other)

    @abstractmethod
    def _compared(self, symbol: Operator, other: object) -> Predicate:
        """The predicate ``value symbol other``."""


class Operand(Comparable):
    """What a field may be compared with besides constants and fields; it defines the comparison."""

    @abstractmethod
    def compared_with(self, path: Path, symbol: Operator) -> Predicate:
        """The predicate ``field symbol operand``."""


@dataclass(frozen=True, eq=False)
class FieldReference(Comparable):
    """A field of an event, waiting for an operator; made by ``field``."""

    path: Path

    def __bool__(self) -> bool:
        raise InvalidPredicate(
            f"field {self.name!r} alone is no predicate",
            remedy=f"compare it: field({self.name!r}) == True for a boolean. Combine with &, | and ~",
        )

    @property
    def name(self) -> str:
        """The field with dots between its records."""
        return ".".join(self.path)

    def is_in(self, values: Iterable[Constant]) -> Predicate:
        """The field's value is one of these."""
        members = (values,) if isinstance(values, str) else tuple(values)
        if not members or isinstance(values, str):
            raise InvalidPredicate(
                f"is_in needs a list of values, not {values!r}", remedy="give it at least one value in a list",
                place=self.name,
            )  # fmt: skip
        return Membership(self.path, tuple(_constant(value, self.name) for value in members))

    def is_null(self) -> Predicate:
        """The field has no value in this event."""
        return Absence(self.path)

    def starts_with(self, text: str) -> Predicate:
        """The field's text begins with this one."""
        if not isinstance(text, str):
            raise _unusable(text, self.name)
        return Prefix(self.path, str(_constant(text, self.name)))

    def _compared(self, symbol: Operator, other: object) -> Predicate:
        if isinstance(other, FieldReference):
            return FieldComparison(self.path, symbol, other.path)
        if isinstance(other, Operand):
            return other.compared_with(self.path, symbol)
        return Comparison(self.path, symbol, _constant(other, self.name))


def field(name: str) -> FieldReference:
    """Name a field of an event or a column of a row. ``address.country`` is a field of the record in ``address``.

    Examples:
        >>> (field("amount") > 900) & field("country").is_in(["DE", "FR"])
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidPredicate(f"{name!r} is not a field's name", remedy="write a name, or names with dots between")
    return FieldReference(tuple(name.split(".")))


def of_type(*events: type) -> Predicate:
    """Match events of one of these classes. Raises DeclarationError for a class that is no event.

    Examples:
        >>> payment_branches = branches(Payment, {"refunds": of_type(Payment.Refunded)}, otherwise="validated")
    """
    if not events:
        raise InvalidPredicate("of_type needs an event class", remedy="give it at least one, such as Payment.Received")
    return TypeTest(tuple(event_type_of(event).name for event in events))


def leaves(predicate: Predicate) -> Iterator[Predicate]:
    """The parts of a predicate that are not made of others."""
    match predicate:
        case Both(left, right) | Either(left, right):
            yield from leaves(left)
            yield from leaves(right)
        case Negated(inner):
            yield from leaves(inner)
        case _:
            yield predicate


def plain(value: object) -> Any:
    """A constant as records hold it: an enum's member as its text, a moment in UTC."""
    if isinstance(value, Enum):
        return enum_texts(type(value))[value]
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def family_of(value: object) -> Family:
    """What a value can be compared with: others of its family only."""
    constant = plain(value) if isinstance(value, Enum) else value
    return next((family for kind, family in _FAMILIES if isinstance(constant, kind)), "other")


def required(other: object) -> Predicate:
    """The same, if it is a predicate; InvalidPredicate."""
    if isinstance(other, Predicate):
        return other
    raise InvalidPredicate(
        f"{other!r} is not a predicate",
        remedy="put each comparison in parentheses: & and | bind tighter than ==, < and >",
    )


def _constant(value: Any, place: str) -> Constant:
    if family_of(value) == "other" or (isinstance(value, float | Decimal) and not math.isfinite(value)):
        raise _unusable(value, place)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise InvalidPredicate(f"{value!r} has no time zone", remedy="give it one: tzinfo=UTC", place=place)
    if isinstance(value, datetime):
        _storable(value, place)
    if isinstance(value, str) and not value.isascii():
        _encodable(value, place)
    return value  # type: ignore[no-any-return]  # its family says that it is one


def _storable(moment: datetime, place: str) -> None:
    try:
        aware_utc(moment)
    except InvalidEventData as error:
        raise InvalidPredicate(error.message, remedy=error.remedy, place=place) from None


def _encodable(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidPredicate(
            f"{text!r} cannot be written as UTF-8", remedy="no event holds half a character: correct the text",
            place=place,
        ) from None  # fmt: skip


def _unusable(value: object, place: str) -> InvalidPredicate:
    remedy = "compare with a text, number, boolean, date, aware datetime, UUID or enum member"
    if value is None:
        remedy = f"write field({place!r}).is_null(), or ~field({place!r}).is_null()"
    elif isinstance(value, float | Decimal):
        remedy = "compare with a finite number; an event's NaN counts as no value: is_null()"
    return InvalidPredicate(f"a field cannot be compared with {value!r}", remedy=remedy, place=place)
