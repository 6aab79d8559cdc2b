"""The mark of a personal field; `eventstore.erasure` seals it and forgets it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eventstore.errors import KeysMissing
from eventstore.fields.conversions import Convert


@dataclass(frozen=True, slots=True)
class Personal:
    """A field about a person, which `erase` makes unreadable.

    Args:
        subject: The event's field that holds the person's id, by default the aggregate's id.
        erased: What readers see after the person was erased. None only for an optional field.

    Examples:
        >>> name: Annotated[str, Personal(subject="customer_id", erased="(erased)")]
    """

    subject: str | None = None
    erased: Any = None


class Sealed(bytes):
    """A personal value that this process cannot open.

    Examples:
        >>> isinstance(recorded.data["name"], Sealed)  # by a store without keys
        True
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Erased:
    """A value of an erased subject while upcasters carry it: the writer's placeholder, and the casts on the way.

    A placeholder is cast only if the current class has none of its own.
    """

    placeholder: Any
    casts: tuple[Any, ...] = ()

    def to_be_cast(self, to: Any) -> Erased:
        """Return the same value, to be cast to an Avro type if it is needed."""
        return replace(self, casts=(*self.casts, to))


class Disclosed(dict[str, Any]):
    """The plain values of an event with personal fields; ``erased`` names those that show the writer's placeholder.

    The current class says what those show once the event is read as the current version. ``personal`` has the writer's
    declaration of each personal field.
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
    """Build the error for a value that is still sealed."""
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
