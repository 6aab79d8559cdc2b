"""The port of a record that arrived at a subscriber."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from eventstore.errors import FactfoldError
from eventstore.messages import RecordedEvent


class Arrival(Protocol):
    """One record that arrived. A source's own class, which also keeps what `acknowledge` needs.

    Without type and problem there is nothing in it for this handler, and it counts as skipped. The whole event is built
    only where a handler asks for it: to most the class it named is enough.

    Examples:
        >>> def around(call: HandlerCall) -> AbstractContextManager[None]:
        ...     return timed(call.arrivals[0].place)  # arrivals are of the source's own class of Arrival
    """

    @property
    def type(self) -> str | None:
        """The event's type name."""

    @property
    def id(self) -> str:
        """The event's id as 32 hexadecimal digits, where there is a type."""

    @property
    def data(self) -> Mapping[str, Any]:
        """The event's fields as Avro gives them, where there is a type."""

    @property
    def schema_version(self) -> int:
        """The version of the class that wrote the event, where there is a type."""

    @property
    def retries(self) -> int:
        """How often the record was put off already."""

    @property
    def problem(self) -> FactfoldError | None:
        """Why the record could not be read. Raises NotFramedAvro or UnknownSchema."""

    @property
    def place(self) -> str:
        """The record's address for messages, such as `payments[2]@17`."""

    def recorded(self) -> RecordedEvent:
        """Return the event as it was recorded, where there is a type. Raises NotFramedAvro."""
