"""What a field's type is once it is compiled: its Avro form, and how values move between Python and Avro.

Classes of named fields: dataclasses, and where they are installed pydantic models and msgspec structs.

Only modules that are already imported are checked: a pydantic model exists only after an import of pydantic.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, get_type_hints

from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.fields.conversions import MISFITS, Avro, Convert
from eventstore.personal.sealing import Personal

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordClass:
    """How the fields of a class are listed, taken out of an object and put into one.

    ``defaults`` has a maker for each field, None for a required one, in the order of declaration. ``values`` may return
    the object's own dictionary. ``restore`` takes a value for every field, ``construct`` those that are known.
    """

    defaults: Mapping[str, Callable[[], Any] | None]
    values: Callable[[Any], Values]
    restore: Callable[[Values], Any]
    construct: Callable[[Values], Any]
    frozen: bool


def hints_of(
    declared: Any, names: Mapping[str, Any], what: str, *, place: str, kind: type[DeclarationError] = DeclarationError
) -> dict[str, Any]:
    """Return the types that a class or a function is annotated with, `Annotated` in full; DeclarationError."""
    try:
        return get_type_hints(declared, localns=dict(names), include_extras=True)
    except NameError as error:
        raise kind(
            f"a type of {what} cannot be found: {error}",
            remedy="import the type in the module that names it, or define it above",
            place=place,
        ) from None


def record_class(cls: type) -> RecordClass | None:
    """Return the ways of a class of fields, None for any other class; DeclarationError if it takes undeclared ones."""
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    for module, base, ways in (("pydantic", "BaseModel", _pydantic), ("msgspec", "Struct", _msgspec)):
        library = sys.modules.get(module)
        if library is not None and issubclass(cls, getattr(library, base)):
            return ways(cls)
    return None


def _dataclass(cls: type) -> RecordClass:
    defaults = {field.name: _default(field, dataclasses.MISSING) for field in dataclasses.fields(cls)}
    slotted = "__slots__" in vars(cls)
    construct = partial(_construct, cls)
    return RecordClass(
        defaults,
        values=partial(_values, tuple(defaults)) if slotted else vars,
        restore=construct if slotted else partial(_restore, cls),
        construct=construct,
        frozen=cls.__dataclass_params__.frozen,  # type: ignore[attr-defined]  # every dataclass has them
    )


def _pydantic(cls: Any) -> RecordClass:
    if cls.model_config.get("extra") == "allow":
        raise DeclarationError(
            f"{cls.__qualname__} takes fields that it does not declare, which would not be stored",
            remedy="declare them, and give the model extra='forbid'",
            place=cls.__qualname__,
        )
    fields = {name: _pydantic_default(field) for name, field in cls.model_fields.items()}
    construct = partial(_model, cls)
    return RecordClass(fields, vars, construct, construct, frozen=bool(cls.model_config.get("frozen")))


def _msgspec(cls: Any) -> RecordClass:
    library = sys.modules["msgspec"]
    defaults = {field.name: _default(field, library.NODEFAULT) for field in library.structs.fields(cls)}
    construct = partial(_construct, cls)
    return RecordClass(
        defaults, partial(_values, tuple(defaults)), construct, construct, frozen=cls.__struct_config__.frozen
    )


def _default(field: Any, missing: object) -> Callable[[], Any] | None:
    if field.default_factory is not missing:
        factory: Callable[[], Any] = field.default_factory
        return factory
    return None if field.default is missing else partial(_same, field.default)


def _pydantic_default(field: Any) -> Callable[[], Any] | None:
    return None if field.is_required() else partial(field.get_default, call_default_factory=True)


def _same(value: Any) -> Any:
    return value


def _values(names: tuple[str, ...], record: Any) -> Values:
    return {name: getattr(record, name) for name in names}


def _restore(cls: type, values: Values) -> Any:
    """The constructor is passed by: it costs three times as much, and a stored fact is not validated again."""
    record: Any = object.__new__(cls)
    object.__setattr__(record, "__dict__", values)
    return record


def _construct(cls: type, values: Values) -> Any:
    return cls(**values)


def _model(cls: Any, values: Values) -> Any:
    return cls.model_construct(**values)


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits of a Decimal field: `Annotated[Decimal, Digits(12, 2)]`.

    Attributes:
        precision: The number of digits in all.
        scale: The number of digits after the point.

    Examples:
        >>> class Invoice(Aggregate):
        ...     @event
        ...     class Sent:
        ...         amount: Annotated[Decimal, Digits(12, 2)]
    """

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class FieldType:
    """One type's Avro form and its two conversions; None means the value stays as it is.

    `enum` is the class behind a text, `record` the name of a record and `fields` its fields; `inner` is the type of a
    list's items or a dictionary's values, or those that a union holds, null apart.
    """

    avro: Avro
    to_plain: Convert | None = None
    from_plain: Convert | None = None
    enum: type[Enum] | None = None
    record: str | None = None
    fields: tuple[Field, ...] = ()
    inner: tuple[FieldType, ...] = ()

    def plain(self, value: Any) -> Any:
        """Return a value as Avro takes it; InvalidEventData, or one of `conversions.MISFITS`, for another type."""
        return value if self.to_plain is None else self.to_plain(value)

    def opened(self, plain: Any) -> Any:
        """Return the value that Avro's form stands for; the errors of `plain`."""
        return plain if self.from_plain is None else self.from_plain(plain)


@dataclass(frozen=True, slots=True)
class Field:
    """One named field of a record; `default` makes its default, and is None where the field is required."""

    name: str
    type: FieldType
    default: Callable[[], Any] | None
    personal: Personal | None = None

    def converted(self, convert: Convert, value: Any, what: str, *, owner: str, remedy: str) -> Any:
        """Convert a value of the field. InvalidEventData says which field or argument of an owner it does not fit."""
        try:
            return convert(value)
        except (InvalidEventData, *MISFITS) as error:
            cause = error if self.personal is None else None  # whose text may show the value
        raise InvalidEventData(
            f"a {type(value).__name__} does not fit {what} {self.name} of {owner}",
            remedy=remedy,
            place=f"{owner}.{self.name}",
        ) from cause

    def avro(self) -> dict[str, Any]:
        """Return the field as an Avro record declares it; only an optional field has an Avro default."""
        if self.personal is not None:
            return {"name": self.name, "type": self._sealed(self.personal)}
        declared = {"name": self.name, "type": self.type.avro}
        nullable = isinstance(self.type.avro, list) and self.default is not None and self.default() is None
        return declared | ({"default": None} if nullable else {})

    def _sealed(self, personal: Personal) -> dict[str, Any]:
        from eventstore.fields.serialization import encode_value  # fastavro is loaded with the first value

        erased = encode_value(self.type.avro, self.type.plain(personal.erased))
        placeholder = base64.b64encode(erased).decode("ascii")
        subject = {} if personal.subject is None else {"subject": personal.subject}
        return {"type": "bytes", "personal": self.type.avro, "erased": placeholder, **subject}


@dataclass(slots=True)
class Compilation:
    """The class being declared, names its annotations may use, and the nested records met so far.

    `namespace` is where its records are named, and known only when an aggregate claims the class.
    """

    owner: str
    names: Mapping[str, Any]
    records: dict[type, FieldType | None] = field(default_factory=dict)
    namespace: str = ""
    apart: list[Compilation] = field(default_factory=list)

    def named(self, namespace: str) -> None:
        """Say where the records are named."""
        for compilation in (self, *self.apart):
            compilation.namespace = namespace
