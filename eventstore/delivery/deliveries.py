"""What a handler of a queue learns about a delivery, and how it decides on it.

    @queue("payment.suspicious", group="review")
    def review(event: Payment.Received, delivery: Delivery) -> None:
        if not desk_is_open():
            delivery.release()
        if event.amount < 0:
            delivery.reject("a payment below zero")

A handler that returns acknowledges its record. What it wrote in `tx` is rolled back if it releases or rejects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn


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
