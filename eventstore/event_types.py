"""A stable type name and a class for every event: what was stored under a name must be readable for ever."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FrameType, MappingProxyType
from typing import Any, Final, Protocol, TypeVar, dataclass_transform, overload

from eventstore.errors import DeclarationError, InvalidEventData, KeysMissing, UnknownEventType
from eventstore.fields.conversions import MISFITS, Convert, kind_of, placed
from eventstore.fields.field_compilation import compile_fields
from eventstore.fields.field_types import Compilation, Field, RecordClass, record_class
from eventstore.fields.unions import in_python
from eventstore.fields.upcasting import FIRST, NO_UPCASTERS, PlainMeaning, Step, TypeMeaning, Upcasters, newer_event
from eventstore.identifiers import check_subject, check_type_name, snake_case
from eventstore.personal.sealing import Disclosed, Erased, Sealed, still_sealed
from eventstore.schema_registry import RegisteredSchema

T = TypeVar("T")

_DECLARED = "__factfold_event__"
_SUBJECTS: Final = ("string", "long", "uuid")


@dataclass(frozen=True, slots=True)
class _Declared:
    """What `@event` knows before the aggregate, and so the type name, exists."""

    compilation: Compilation
    fields: tuple[Field, ...]
    upcasters: Upcasters

    def named(self, cls: type, name: str) -> EventType:
        """Give the class its type name, whose first part is where its records are named."""
        self.compilation.named(name.rpartition(".")[0])
        return EventType(name, cls, self.fields, self.upcasters)


class BodyCodec(Protocol):
    """Turns plain field values into a framed Avro value."""

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return magic byte, schema id and body."""


@dataclass(frozen=True)
class EventType:
    """One type of event: stable name, class, and how values move between object and Avro."""

    name: str
    cls: type
    fields: tuple[Field, ...]
    upcasters: Upcasters = NO_UPCASTERS
    assigned: RegisteredSchema | None = None

    @cached_property
    def version(self) -> int:
        """The version that its events are written in."""
        return self.upcasters.version

    @property
    def stored_names(self) -> tuple[str, ...]:
        """Every name that its events are stored under, the current one first."""
        return (self.name, *self.upcasters.former_names)

    @cached_property
    def registered(self) -> RegisteredSchema:
        """The Avro schema with its id."""
        namespace, _, name = self.name.rpartition(".")
        fields = [field.avro() for field in self.fields]
        version = {"version": self.version} if self.version > FIRST else {}
        schema = {"type": "record", "namespace": namespace, "name": name, "fields": fields}
        own = RegisteredSchema.of({**schema, **version})
        return own if self.assigned is None else dataclasses.replace(self.assigned, schema=own.schema)

    def under(self, assigned: RegisteredSchema) -> EventType:
        """Return the type with its events framed by the id that a registry has given its schema."""
        return dataclasses.replace(self, assigned=assigned)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The Avro schema as parsed JSON."""
        return self.registered.schema

    @property
    def schema_id(self) -> int:
        """The id that travels with every event: the fingerprint, unless a registry has given another."""
        return self.registered.id

    @cached_property
    def codec(self) -> BodyCodec:
        """The Avro encoder, built at first use so that declaring events loads no Avro library."""
        from eventstore.fields.serialization import AvroEncoder  # fastavro is loaded with the first value

        return AvroEncoder(self.registered)

    @cached_property
    def _to_plain(self) -> tuple[tuple[str, Convert], ...]:
        return tuple((f.name, f.type.to_plain) for f in self.fields if f.type.to_plain is not None)

    @cached_property
    def _from_plain(self) -> tuple[tuple[str, Convert], ...]:
        return tuple((f.name, f.type.from_plain) for f in self.fields if f.type.from_plain is not None)

    @cached_property
    def _ways(self) -> RecordClass:
        return _ways_of(self.cls)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def to_plain(self, event: object) -> dict[str, Any]:
        """Return the event's values as Avro takes them; read only, they may be the event's own."""
        values = self._ways.values(event)
        if not self._to_plain:
            return values
        values = dict(values)
        for name, convert in self._to_plain:
            values[name] = self._convert(name, convert, values[name])
        return values

    def from_plain(self, values: Mapping[str, Any]) -> Any:
        """Build the event from plain values; fields the writer did not know take their defaults.

        A stored fact is not validated again.
        """
        known = dict(values) if values.keys() == self._names else self._fitted(values)
        for name, convert in self._from_plain:
            known[name] = self._convert(name, convert, known[name])
        return self._ways.restore(known)

    def upcast(self, version: int, values: Mapping[str, Any]) -> list[tuple[EventType, Mapping[str, Any]]]:
        """Return the current events that stored values stand for: one, unless a function returns others.

        SchemaError; InvalidEventData where a value cannot be cast; KeysMissing where a function would see one sealed.
        """
        personal = isinstance(values, Disclosed)
        if version == self.version and not personal:
            return [(self, values)]
        self.require_known(version)
        carried = self.carried(version, values.marked() if isinstance(values, Disclosed) else values, secret=personal)
        if isinstance(carried, dict):
            return [(self, carried)]
        return [(kind, kind.to_plain(event)) for event in carried for kind in [event_type_of(event)]]

    def carried(
        self, version: int, values: Mapping[str, Any], *, secret: bool = False
    ) -> dict[str, Any] | list[object]:
        """Return plain values as their upcasters return them. `Erased` ones show their field's current placeholder.

        A field that is no longer personal shows the writer's, cast as its values are. The errors of `upcast` contain no
        value if the values are ``secret``, or the class has personal fields.
        """
        meaning = PlainMeaning(self.name, secret=secret or bool(self.personal))
        result = self.upcasters.run(version, values, meaning)
        if isinstance(result, dict):
            for name in [name for name, value in result.items() if type(value) is Erased]:
                result[name] = self._shown(name, result[name], meaning)
        return result

    def _shown(self, name: str, erased: Erased, meaning: PlainMeaning) -> Any:
        from eventstore.fields.serialization import placeholder  # fastavro is loaded with the first value

        declared = self.registered.personal.get(name)
        return meaning.shown(erased, name) if declared is None else placeholder(declared)

    def today(self, version: int, values: Mapping[str, Any]) -> list[tuple[EventType, Mapping[str, Any]]]:
        """Do as `upcast`, and give the fields that the writer did not know their defaults, as plain values.

        InvalidEventData for such a field without a default.
        """
        return [(kind, kind.completed(plain)) for kind, plain in self.upcast(version, values)]

    def seen(self, written: RegisteredSchema) -> RegisteredSchema:
        """Return what records of a schema look like once they are upcast by declared changes.

        It keeps the writer's schema id. Current fields without a value in such a record are left out.
        InvalidEventData where a cast cannot be made.
        """
        if written.schema == self.schema:  # under whatever id
            return written
        types = {field["name"]: field["type"] for field in written.schema["fields"]}
        carried = self.upcasters.interpret(written.version, types, TypeMeaning())
        fields = [{"name": f.name, "type": carried.get(f.name, f.type.avro)} for f in self.fields if f.name in carried
                  or f.default is not None]  # fmt: skip
        return RegisteredSchema(written.id, self.name, {**self.schema, "fields": fields})

    def default_of(self, name: str) -> Any:
        """Return the plain default of a field that has one."""
        field = next(field for field in self.fields if field.name == name)
        return field.type.plain(field.default() if field.default else None)

    def require_known(self, version: int) -> None:
        """Raise SchemaError for a version that this class never was."""
        if version > self.version:
            raise newer_event(self.name, version, self.version)

    def events(self, version: int, values: Mapping[str, Any]) -> list[Any]:
        """Build the current events from stored plain values. Raises the errors of `upcast` and `from_plain`.

        Raises KeysMissing if one of their values is sealed.
        """
        plain_events = self.upcast(version, values)
        if isinstance(values, Disclosed):
            for kind, plain in plain_events:
                kind.require_open(plain)
        return [kind.from_plain(plain) for kind, plain in plain_events]

    def require_open(self, values: Mapping[str, Any]) -> None:
        """Raise KeysMissing if a plain value is still sealed, whether or not the field is still personal."""
        for field in self.fields:
            if type(values.get(field.name)) is Sealed:
                raise still_sealed(f"{self.name}.{field.name}")

    def encode(self, event: object) -> bytes:
        """Return the event as Avro in Confluent framing; InvalidEventData names a field that does not fit."""
        if self.personal:
            raise KeysMissing(
                f"{self.name} has personal fields", remedy="seal them: eventstore.personal.sealing.PersonalData"
            )
        return self.codec.encode(self.to_plain(event))

    def encode_sealed(self, event: object, aggregate_id: str, seal: Callable[[str, str, bytes], bytes]) -> bytes:
        """Do as `encode`, with each personal field as ``seal(subject, field, clear Avro)`` returns it."""
        from eventstore.fields.serialization import encode_value  # fastavro is loaded with the first value

        values = dict(self.to_plain(event))
        for field in self.personal:
            clear: bytes | None
            try:
                clear = encode_value(field.type.avro, values[field.name])
            except Exception:
                clear = None
            if clear is None:  # raised out here: no traceback shows a cause that contains the value
                raise self._misfit(field.name, values[field.name])
            values[field.name] = seal(self._subject(field, event, aggregate_id), field.name, clear)
        return self.codec.encode(values)

    @cached_property
    def personal(self) -> tuple[Field, ...]:
        """The fields that are sealed under the key of a subject."""
        return tuple(field for field in self.fields if field.personal is not None)

    def subjects(self, event: object, aggregate_id: str) -> set[str]:
        """Return the subjects of an event's personal fields. Raises InvalidEventData if one is missing."""
        return {self._subject(field, event, aggregate_id) for field in self.personal}

    def _subject(self, field: Field, event: object, aggregate_id: str) -> str:
        named = field.personal.subject if field.personal is not None else None
        subject = aggregate_id if named is None else self._ways.values(event).get(named)
        if subject is None or subject == "":
            raise InvalidEventData(
                f"{self.name}.{field.name} is personal, and its subject {named} is empty",
                remedy="name its subject, or give the field the aggregate's id for a subject",
                place=f"{self.name}.{named}",
            )
        return check_subject(str(subject), place=f"{self.name}.{field.name}")

    def _convert(self, name: str, convert: Convert, value: Any) -> Any:
        try:
            return convert(value)
        except (InvalidEventData, *MISFITS) as error:
            problem = error
        path = (problem.place or "") if isinstance(problem, InvalidEventData) else ""
        if name in self._personal_names:  # without its cause, which tells the value
            raise self._misfit(name, value, path)
        if isinstance(problem, InvalidEventData):
            raise placed(f"{self.name}.{name}", problem)
        raise self._misfit(name, value) from problem

    @cached_property
    def _personal_names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.personal)

    def _misfit(self, name: str, value: object, path: str = "") -> InvalidEventData:
        """Build the error for a value that has no place in its field; of a personal one it shows the type alone."""
        kind = type(value).__name__
        shown = f"a value of type {kind}" if name in self._personal_names else f"{value!r} of type {kind}"
        declared = next(in_python(field.type.avro) for field in self.fields if field.name == name)
        return InvalidEventData(
            f"{shown} does not fit field {name} of {self.name}, which has type {declared}",
            remedy=f"give the field a value of type {declared}",
            place=f"{self.name}.{name}{path}",
        )

    def completed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return plain values of the current fields, defaults included. Raises InvalidEventData for a missing field."""
        return values if values.keys() == self._names else self._fitted(values)

    def _fitted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {field.name: self._value(field, values) for field in self.fields}

    def _value(self, field: Field, values: Mapping[str, Any]) -> Any:
        if field.name in values:
            return values[field.name]
        if field.default is not None:
            return self.default_of(field.name)
        raise InvalidEventData(
            f"a stored {self.name} has no value for field {field.name}",
            remedy="give the new field a default: events stored before it existed stay without it",
            place=f"{self.name}.{field.name}",
        )


@overload
def event(cls: type[T], /) -> type[T]: ...


@overload
def event(*, name: str | None = None, upcasters: Mapping[int, Step] = ...) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(
    cls: type[T] | None = None,
    /,
    *,
    name: str | None = None,
    upcasters: Mapping[int, Step] = MappingProxyType({}),
) -> Any:
    """Make a class an event: a frozen dataclass of keyword arguments with a stable type name.

    Args:
        name: The event type. Inside an aggregate it is `category.class_name` by default, elsewhere it is required.
        upcasters: The step from each former version of the class to the next, counted from 1.

    Examples:
        >>> @event(name="order.placed", upcasters={1: Default("currency", "EUR")})
        ... class Placed: amount: int; currency: str
    """
    names = visible_names(inspect.currentframe())
    if cls is not None:
        return _declare(cls, name, names, upcasters)
    return lambda decorated: _declare(decorated, name, names, upcasters)


def visible_names(frame: FrameType | None) -> dict[str, Any]:
    """Collect the names of the scopes around a decorator, so that annotations may use local classes."""
    scopes: list[dict[str, Any]] = []
    frame = frame.f_back if frame else None
    while frame is not None and frame.f_code.co_name != "<module>":
        scopes.append(dict(frame.f_locals))
        frame = frame.f_back
    return {name: value for scope in reversed(scopes) for name, value in scope.items()}


def _declare(cls: type[T], name: str | None, names: Mapping[str, Any], upcasters: Mapping[int, Step]) -> type[T]:
    is_model = record_class(cls) is not None and not dataclasses.is_dataclass(cls)
    made = cls if is_model else dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    _require_frozen(made)
    compilation = Compilation(made.__qualname__, names)
    fields = compile_fields(made, compilation)
    _require_subjects(made, fields)
    declared = _Declared(compilation, fields, Upcasters.of(upcasters, compilation=compilation))
    setattr(made, _DECLARED, declared if name is None else declared.named(made, check_type_name(name)))
    return made


def _require_subjects(cls: type, fields: Sequence[Field]) -> None:
    clear = {field.name: field.type for field in fields if field.personal is None}
    for field in fields:
        if field.personal is None or not (subject := field.personal.subject):
            continue
        place = f"{cls.__qualname__}.{field.name}"
        if subject not in clear:
            raise DeclarationError(
                f"the subject of personal field {field.name} of {cls.__qualname__}, {subject!r}, is no clear field",
                remedy="name a field of the event that holds the person's id, and is not personal itself",
                place=place,
            )
        # What is imported says its subject in plain values: it has to be spelt there as it is here.
        if clear[subject].enum is not None or kind_of(clear[subject].avro) not in _SUBJECTS:
            raise DeclarationError(
                f"the subject of personal field {field.name} of {cls.__qualname__}, {subject!r}, is not an id",
                remedy="make it a text, a whole number or a UUID",
                place=place,
            )


def _require_frozen(cls: type) -> None:
    if not _ways_of(cls).frozen:
        raise DeclarationError(
            f"event {cls.__qualname__} is not frozen: its objects can be changed",
            remedy=f"declare it as class {cls.__name__}({cls.__bases__[0].__name__}, frozen=True)",
            place=cls.__qualname__,
        )


def _ways_of(cls: type) -> RecordClass:
    ways = record_class(cls)
    if ways is None:
        raise AssertionError(f"{cls.__qualname__} was declared an event, and is no class of fields")
    return ways


def finish_declaration(cls: type, category: str) -> EventType:
    """Give an event class of an aggregate its type name, unless it brought its own."""
    declared = vars(cls)[_DECLARED]
    if isinstance(declared, EventType):
        return declared
    finished: EventType = declared.named(cls, check_type_name(f"{category}.{snake_case(cls.__name__)}"))
    setattr(cls, _DECLARED, finished)
    return finished


def is_event_class(value: object) -> bool:
    """Say whether `@event` made this class."""
    return isinstance(value, type) and _DECLARED in vars(value)


def event_type_of(event: object) -> EventType:
    """Return the type of an event object or class. Raises DeclarationError if it is no event or has no name.

    Examples:
        >>> assert event_type_of(Order.Placed).name == "order.placed"
    """
    cls = event if isinstance(event, type) else type(event)
    declared = vars(cls).get(_DECLARED)
    if isinstance(declared, EventType):
        return declared
    raise DeclarationError(
        f"{cls.__qualname__} is not an event with a type name",
        remedy="decorate the class with @event inside an aggregate, or with @event(name=...)",
        place=cls.__qualname__,
    )


def type_of_object(event: object) -> EventType:
    """Return the type of an event object; InvalidEventData for a class, and the errors of `event_type_of`."""
    if not isinstance(event, type):
        return event_type_of(event)
    raise InvalidEventData(
        f"{event.__qualname__} is a class, not an event",
        remedy=f"make an object of it: {event.__qualname__}(…)",
        place=event.__qualname__,
    )


def unknown_event_type(name: str, known: Mapping[str, EventType], place: str) -> UnknownEventType:
    """Build the error for a stored type name that no class claims."""
    return UnknownEventType(
        f"no event class of {place} has the type {name!r}, and known are {', '.join(sorted(known)) or 'none'}",
        remedy="declare the class again, or keep its old name with @event(name=...)",
        place=place,
    )
