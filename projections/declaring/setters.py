"""What an event sets a column to: ``on(Order.Placed).take("amount")``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventstore.event_types import EventType, event_type_of
from eventstore.identifiers import require_type
from eventstore.schema_registry import is_sealed
from projections.declaring.avro_records import spelled_out
from projections.declaring.columns import ColumnType, from_avro, from_python
from projections.errors import InvalidDefinition


@dataclass(frozen=True)
class Setter:
    """One event type that sets a column: from a field of the event, or to a constant."""

    event: EventType
    field: str | None
    value: str | int | bool | None = None

    def column_type(self) -> ColumnType:
        """The type of what this setter writes."""
        if self.field is None:
            return from_python(type(self.value), place=self.event.name)
        return from_avro(self._field_schema(self.field), place=f"{self.event.name}.{self.field}")

    @property
    def personal(self) -> bool:
        """Whether what it takes is sealed under the key of a person."""
        return self.field is not None and is_sealed(self._field_schema(self.field))

    @property
    def placeholder(self) -> str | None:
        """What the field shows after an erasure, as its schema stores it; None if it is not personal."""
        return str(self._field_schema(self.field or "")["erased"]) if self.personal else None

    def _field_schema(self, name: str) -> Any:
        for candidate in spelled_out(self.event.schema)["fields"]:
            if candidate["name"] == name:
                return candidate["type"]
        known = ", ".join(f["name"] for f in self.event.schema["fields"])
        raise InvalidDefinition(
            f"event {self.event.name} has no field {name!r}", remedy=f"its fields are: {known}", code="unknown-column"
        )


@dataclass(frozen=True)
class On:
    """The left half of a declared column: ``on(Order.Placed).take("amount")``."""

    event: EventType

    def take(self, name: str) -> Setter:
        """Set the column from a field of the event."""
        setter = Setter(self.event, name)
        setter.column_type()
        return setter

    def set(self, value: str | int | bool) -> Setter:
        """Set the column to a constant."""
        return Setter(self.event, None, value)


def on(event: type) -> On:
    """Say what an event does to a column.

    Examples:
        >>> {"amount": on(Order.Placed).take("amount"), "paid": on(Order.Paid).set(True)}
    """
    return On(event_type_of(event))


Declared = Mapping[str, Setter | Sequence[Setter]]
Setters = Mapping[str, tuple[Setter, ...]]


def as_setters(declared: Declared) -> Setters:
    """The setters of each column as a tuple."""
    setters = {column: (s,) if isinstance(s, Setter) else s for column, s in declared.items()}
    for column, given in setters.items():
        for setter in given if isinstance(given, list | tuple) else [given]:
            require_type(setter, Setter, f"column {column!r}", takes="setters: on(Order.Placed).take('amount')")
    return {column: tuple(given) for column, given in setters.items()}


def agreed_type(column: str, setters: Sequence[Setter], *, place: str) -> ColumnType:
    """The one type of all setters of a column, or InvalidDefinition."""
    kinds = {setter.column_type() for setter in setters}
    if len(kinds) == 1:
        return kinds.pop()
    raise InvalidDefinition(
        f"column {column!r} is set to different types: {', '.join(sorted(k.opened for k in kinds)) or 'none'}",
        remedy="give every setter of a column the same type, and at least one setter",
        place=place,
    )


def taken_from_personal(setters: Mapping[str, Sequence[Setter]]) -> tuple[str, ...]:
    """The columns that any of their setters takes from a personal field."""
    return tuple(column for column, choices in setters.items() if any(setter.personal for setter in choices))


def placeholders(setters: Mapping[str, Sequence[Setter]]) -> str:
    """What columns show after an erasure, as a part of a signature; nothing without personal ones."""
    shown = {column: [s.placeholder for s in setters[column]] for column in taken_from_personal(setters)}
    return f"|{shown}" if shown else ""
