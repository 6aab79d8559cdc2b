"""The mark of a personal field; `eventstore.erasure` seals it and forgets it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eventstore.conversions import Convert
from eventstore.errors import KeysMissing


@dataclass(frozen=True, slots=True)
class Personal:
    """A field that is about a person: ``Annotated[str, Personal(subject="customer_id", erased="(erased)")]``.

    ``subject`` names the event's field that holds the person's id, the aggregate's id without it. ``erased`` is what
    readers see once the person was erased, None for an optional field.
    """

    subject: str | None = None
    erased: Any = None


class Sealed(bytes):
    """A personal value that this process has not opened."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Erased:
    """A value whose person was erased, while it is carried to today: the writer's placeholder, and what casts it met.

    A placeholder is cast only where today's class has none of its own to show instead.
    """

    placeholder: Any
    casts: tuple[Any, ...] = ()

    def to_be_cast(self, to: Any) -> Erased:
        """Return the same value, to be cast to an Avro type if it is needed."""
        return replace(self, casts=(*self.casts, to))


class Disclosed(dict[str, Any]):
    """The plain values of an event with personal fields; ``erased`` names those that show the writer's placeholder.

    What those show once the event is read as of today, today's class says. ``personal`` has the writer's declaration of
    each personal field.
    """

    def __init__(
        self, values: Mapping[str, Any], erased: Collection[str] = (), personal: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(values)
        self.erased = frozenset(erased)
        self.personal = dict(personal or {})

    def marked(self) -> dict[str, Any]:
        """Return the values, those of erased persons as `Erased`."""
        return {name: Erased(value) if name in self.erased else value for name, value in self.items()}


def still_sealed(place: str | None = None) -> KeysMissing:
    """Build the error for a value that nobody here has opened."""
    return KeysMissing(
        "a personal field is sealed, and there are no keys here to open it",
        remedy="read with the keys: SqlEventStore(url, keys=…), open_subscriber(…, keys=…)",
        place=place,
    )


def opened(convert: Convert | None) -> Convert:
    """Refuse a value that is sealed still, as where no keys are at hand."""

    def checked(value: Any) -> Any:
        if type(value) is Sealed:
            raise still_sealed()
        return value if convert is None else convert(value)

    return checked
