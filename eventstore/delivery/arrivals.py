"""The port of a record that arrived at a subscriber."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

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


class Released(Exception):
    """The handler gave a record back: another worker, or the same one, gets it again."""


class Rejected(Exception):
    """The handler refused a record for good: it becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a record.

    Attributes:
        count: How often the record was delivered, counted from 1.
        place: The record's address, such as `payments[2]@17`.

    Examples:
        >>> @queue("payment.suspicious", group="review-desk", deliveries=3)
        ... def review(event: Payment.Received, delivery: Delivery) -> None:
        ...     if event.amount < 0:
        ...         delivery.reject("a payment below zero")
    """

    count: int = 1
    place: str = ""

    def release(self) -> NoReturn:
        """Release the record for another delivery. Ends the handler."""
        raise Released(f"released at delivery {self.count}")

    def reject(self, cause: str) -> NoReturn:
        """Make the record a dead letter with this cause. Ends the handler."""
        raise Rejected(cause)
