"""Upcasters: how events written by an older version of their class are read as the current one.

Each step leads from one version to the next and is a list of changes. Declared changes are interpreted: over plain
values and over Avro types here, over columns in Spark. A function of Python takes the plain values as they are at its
step, and returns them changed, or the current events that the old one stands for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Protocol, TypeVar

from eventstore.errors import DeclarationError, InvalidEventData, SchemaError, UnsupportedFieldType
from eventstore.fields.conversions import ENUM, Avro, can_cast, cast_plain, kind_of
from eventstore.fields.field_compilation import compile_type
from eventstore.fields.field_types import Compilation, FieldType
from eventstore.personal.sealing import Erased, Sealed, still_sealed
from eventstore.schema_registry import is_sealed

V = TypeVar("V")
FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Rename:
    """A field was renamed.

    Examples:
        >>> class Order(Aggregate):
        ...     @event(upcasters={1: [Rename("amount", to="quantity")]})
        ...     class Placed:
        ...         quantity: int
    """

    field: str
    to: str


@dataclass(frozen=True, slots=True)
class Default:
    """A field was added. Events without it get this value.

    Examples:
        >>> @event(upcasters={1: Default("currency", "EUR")})
        ... class Placed: amount: int; currency: str
    """

    field: str
    value: Any


@dataclass(frozen=True, slots=True)
class Drop:
    """A field was removed.

    Examples:
        >>> class Order(Aggregate):
        ...     @event(upcasters={1: [Drop("note")]})
        ...     class Placed:
        ...         quantity: int
    """

    field: str


@dataclass(frozen=True, slots=True)
class Cast:
    """A field has another type. Reading a value that the new type cannot hold exactly raises an error.

    Examples:
        >>> class Order(Aggregate):
        ...     @event(upcasters={1: [Cast("quantity", int)]})
        ...     class Placed:
        ...         quantity: int
    """

    field: str
    to: Any


@dataclass(frozen=True, slots=True)
class Retype:
    """The event was stored under another type name until this version.

    Examples:
        >>> class Order(Aggregate):
        ...     @event(upcasters={1: [Retype("order.created")]})
        ...     class Placed:
        ...         quantity: int
    """

    was: str


Change = Rename | Default | Drop | Cast | Retype
Function = Callable[[dict[str, Any]], "Mapping[str, Any] | Iterable[object]"]
Step = Sequence[Change | Function]


class Meaning(Protocol[V]):
    """What constants and casts are where changes are interpreted."""

    def constant(self, value: Any, avro: Avro | None) -> V:
        """Return a plain value of a type; None for the type of an empty list or dictionary, or of None itself."""

    def cast(self, value: V, to: Avro, field: str) -> V:
        """Return a value in another type."""

    def taken(self, field: str, to: str) -> InvalidEventData:
        """Build the error for a field that cannot have a name, because another one has it."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """A `Default` with its plain value and type."""

    field: str
    value: Any
    avro: Avro | None


@dataclass(frozen=True, slots=True)
class _Recast:
    """A `Cast` with the Avro form of its type."""

    field: str
    to: Avro


Compiled = Rename | _Filled | Drop | _Recast | Retype


@dataclass(frozen=True)
class Upcasters:
    """The steps of one event type: ``steps[n]`` leads from version n to n + 1, and the last one to the current."""

    steps: Mapping[int, Sequence[Compiled | Function]]

    @staticmethod
    def of(steps: Mapping[int, Step], *, compilation: Compilation) -> Upcasters:
        """Check the steps of a class; DeclarationError where one is missing, UnsupportedFieldType."""
        expected = range(FIRST, FIRST + len(steps))
        missing = next((version for version in expected if version not in steps), None)
        if missing is None:
            return Upcasters({n: [_compiled(change, compilation) for change in steps[n]] for n in expected})
        raise DeclarationError(
            f"{compilation.owner} has no upcaster from version {missing}",
            remedy="give every version but today's its own: upcasters={1: [Rename(…)], 2: [Default(…)]}",
            place=compilation.owner,
        )

    @property
    def version(self) -> int:
        """The version in which events are written now."""
        return FIRST + len(self.steps)

    @property
    def former_names(self) -> tuple[str, ...]:
        """The type names that events were stored under before."""
        return tuple(c.was for step in self.steps.values() for c in step if isinstance(c, Retype))

    def declared_from(self, version: int) -> bool:
        """Return whether every change from a version on is declared, and no function has to run."""
        return all(isinstance(change, Compiled) for change in self._from(version))

    def interpret(self, version: int, fields: Mapping[str, V], meaning: Meaning[V]) -> dict[str, V]:
        """Carry the fields of a version to the current one, by declared changes alone."""
        carried = dict(fields)
        for change in self._from(version):
            assert isinstance(change, Compiled)  # noqa: S101 - `declared_from` has been asked
            _apply(change, carried, meaning)
        return carried

    def run(self, version: int, values: Mapping[str, Any], meaning: PlainMeaning) -> dict[str, Any] | list[object]:
        """Carry plain values of a version to the current one, or to the events that a function returns."""
        carried = dict(values)
        for change in self._from(version):
            if isinstance(change, Compiled):
                _apply(change, carried, meaning)
            elif isinstance(result := meaning.called(change, carried), dict):
                carried = result
            else:
                return result
        return carried

    def _from(self, version: int) -> Iterator[Compiled | Function]:
        return (change for number in range(version, self.version) for change in self.steps[number])


def _compiled(change: Change | Function, compilation: Compilation) -> Compiled | Function:
    match change:
        case Cast(field, to):
            return _Recast(field, _single(compile_type(to, field, compilation), field, compilation))
        case Default(field, value) if value is None or isinstance(value, list | dict):
            return _Filled(field, value, None)
        case Default(field, value):
            kind = compile_type(type(value), field, compilation)
            plain = kind.plain(value)
            # A text is one of an enum's where it is one of its texts.
            return _Filled(field, plain, {"type": "string", ENUM: {"": plain}} if kind.avro == "string" else kind.avro)
    return change


def _single(kind: FieldType, field: str, compilation: Compilation) -> Avro:
    if kind.record is None and not kind.inner:
        return kind.avro
    raise UnsupportedFieldType(
        f"{compilation.owner} casts field {field} to a list, map, record or union, which a cast cannot convert",
        remedy="upcast it by a function that knows what such a value means",
        place=f"{compilation.owner}.{field}",
    )


def name_taken(field: str, to: str, place: str) -> InvalidEventData:
    """Build the error for a field that cannot have a name, because another one has it."""
    return InvalidEventData(
        f"field {field} cannot be renamed to {to}: the event has a field of that name",
        remedy=f'Drop("{to}") or Rename it before, or upcast both by a function',
        place=place,
    )


def _apply(change: Compiled, fields: dict[str, V], meaning: Meaning[V]) -> None:
    match change:
        case Rename(field, to):
            if field in fields:
                value = fields.pop(field)
                if to in fields:
                    raise meaning.taken(field, to)
                fields[to] = value
        case _Filled(field, value, avro):
            if field not in fields:
                fields[field] = meaning.constant(value, avro)
        case Drop(field):
            fields.pop(field, None)
        case _Recast(field, to_type):
            if field in fields:
                fields[field] = meaning.cast(fields[field], to_type, field)


class PlainMeaning:
    """Plain values, as Avro gives them, of an event type; errors tell none of them where they are ``secret``."""

    def __init__(self, owner: str, *, secret: bool = False) -> None:
        self._owner = owner
        self._secret = secret

    def constant(self, value: Any, avro: Avro | None) -> Any:
        """Return the value, a list or dictionary as a copy."""
        return copy.copy(value)

    def cast(self, value: Any, to: Avro, field: str) -> Any:
        """Return the value in another type; InvalidEventData names the field.

        A sealed value is cast when it is opened, and one that was erased only if it is `shown`.
        """
        if type(value) is Sealed:
            return value
        if type(value) is Erased:
            return value.to_be_cast(to)
        try:
            return cast_plain(value, to)
        except ValueError as error:
            problem = f"this {type(value).__name__} is no {kind_of(to)}" if self._secret else str(error)
        raise InvalidEventData(
            f"field {field} cannot be cast: {problem}",
            remedy="upcast it by a function that knows what such a value means",
            place=f"{self._owner}.{field}",
        )

    def taken(self, field: str, to: str) -> InvalidEventData:
        """Build the error for a name that another field has."""
        return name_taken(field, to, f"{self._owner}.{to}")

    def called(self, function: Function, fields: Mapping[str, Any]) -> dict[str, Any] | list[object]:
        """Return what the function makes of the values; KeysMissing where one is sealed, which it would not know.

        It sees the writer's placeholder where a person was erased; what it makes of that is still an erased value.
        """
        sealed = next((name for name, value in fields.items() if type(value) is Sealed), None)
        if sealed is not None:
            raise still_sealed(f"{self._owner}.{sealed}")
        erased = {name for name, value in fields.items() if type(value) is Erased}
        result = function({name: fields[name].placeholder if name in erased else fields[name] for name in fields})
        if not isinstance(result, Mapping):
            return list(result)
        return {name: Erased(value) if name in erased else value for name, value in result.items()}

    def shown(self, erased: Erased, field: str) -> Any:
        """Return the writer's placeholder as the casts on its way make it; InvalidEventData names the field."""
        return reduce(lambda value, to: self.cast(value, to, field), erased.casts, erased.placeholder)


class TypeMeaning:
    """Avro types: what the values of a field are once they are read."""

    def constant(self, value: Any, avro: Avro | None) -> Avro:
        """Return the type of the constant; that of a list or dictionary holds what any other one holds."""
        match value:
            case list():
                return {"type": "array", "items": []}
            case dict() if avro is None:
                return {"type": "map", "values": []}
        return "null" if avro is None else avro

    def cast(self, value: Avro, to: Avro, field: str) -> Avro:
        """Return the type after the cast, optional where it was; InvalidEventData where there is no such cast.

        A sealed value stays one: it is cast when it is opened.
        """
        if is_sealed(value):
            return value
        if not can_cast(value, to):
            raise InvalidEventData(
                f"field {field} cannot be cast from {kind_of(value)} to {kind_of(to)}",
                remedy="upcast it by a function that knows what such a value means",
                place=field,
            )
        return ["null", to] if isinstance(value, list) and not isinstance(to, list) else to

    def taken(self, field: str, to: str) -> InvalidEventData:
        """Build the error for a name that another field has."""
        return name_taken(field, to, to)


NO_UPCASTERS: Final = Upcasters({})


def newer_event(name: str, version: int, known: int) -> SchemaError:
    """Build the error for an event that a newer version of the code has written."""
    return SchemaError(
        f"{name} was stored in version {version}, and the newest that this code knows is {known}",
        remedy="read it with the code that writes it: bring readers up to date before writers",
        place=name,
        code="newer-event",
    )
