"""The mark of a personal field; `eventstore.erasure` seals it and forgets it."""

from __future__ import annotations

from dataclasses import dataclass
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
    """A personal value that nobody here has opened."""

    __slots__ = ()


def opened(convert: Convert | None) -> Convert:
    """Refuse a value that is sealed still, as where no keys are at hand."""

    def checked(value: Any) -> Any:
        if type(value) is Sealed:
            raise KeysMissing(
                "a personal field is sealed, and there are no keys here to open it",
                remedy="read with the keys: SqlEventStore(url, keys=…), open_subscriber(…, keys=…)",
            )
        return value if convert is None else convert(value)

    return checked
