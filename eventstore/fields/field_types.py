"""What a field's type is once it is compiled: its Avro form, and how values move between Python and Avro."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from eventstore.fields.conversions import Avro, Convert
from eventstore.personal.sealing import Personal


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
