"""The port between where events come from and the handler they are delivered to.

A source knows its place in its log and nothing of handlers; the subscriber knows nothing of logs:

    poll → [attempt → checkpoint → commit] → acknowledge        one batch; the brackets are a transaction
           (prepare, keep_alive meanwhile)                      at most once: take comes before the attempt
                    ├ dead_letter → checkpoint → commit         a record given up, or by postpone put off
                    └ halted: what is done is acknowledged, give_back the rest

`checkpoint`, `dead_letter` and `postpone` are called by the thread that runs handlers, everything else by the
subscriber's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from eventstore.delivery.arrivals import Arrival, masked_message
from eventstore.topics import DEAD_LETTER_MESSAGE_LENGTH

if TYPE_CHECKING:
    from sqlalchemy import Connection


A = TypeVar("A", bound=Arrival)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Generic[A]):
    """A record that was given up.

    Attributes:
        arrival: The record.
        group: The group that gave it up.
        error: Why.
        attempts: How often the handler was called, 0 for a record that could not be read.
        time: When it was given up.

    Examples:
        >>> letter = DeadLetter(arrival=arrival, group="fraud", error=error, attempts=5, time=now)
    """

    arrival: A
    group: str
    error: Exception
    attempts: int
    time: datetime

    @property
    def message(self) -> str:
        """The error's text, personal values masked, and cut to what a header takes."""
        return masked_message(self.error, [self.arrival])[:DEAD_LETTER_MESSAGE_LENGTH]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Records of one partition that wait, and the age in seconds of the oldest of them (0 where none waits).

    Records are counted in offsets, which the markers of transactions use up too.
    """

    partition: int
    records: int
    seconds: float
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind, by partition.

    Examples:
        >>> subscriber.lag().records
        0
    """

    partitions: tuple[PartitionLag, ...]

    @property
    def records(self) -> int:
        """Records that wait in all partitions."""
        return sum(partition.records for partition in self.partitions)

    @property
    def seconds(self) -> float:
        """The age of the oldest record that waits, in seconds."""
        return max((partition.seconds for partition in self.partitions), default=0.0)


class Source(Protocol[A]):
    """A log read by a group, in order within each key.

    Examples:
        >>> source: Source = StoreSource(store, review, category="payment")
    """

    def checkpoint_name(self, arrival: A) -> str:
        """Return the name under which the inbox keeps a record: no other log of its group has it."""

    def key_of(self, arrival: A) -> str:
        """Return what names the records that are handled in order: the stream of an event."""

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Begin to read. `on_revoked` is called before places are given up, and ends the batch at hand."""

    def poll(self, timeout: float) -> Sequence[A]:
        """Return the next batch once there is one, nothing after `timeout` seconds."""

    def prepare(self) -> None:
        """Fetch and decode what comes next while a handler works on the batch at hand. Returns at once."""

    def keep_alive(self) -> None:
        """Stay a member of the group while a handler works. Returns at once and fetches nothing."""

    def checkpoint(self, tx: Connection, arrivals: Sequence[A]) -> None:
        """Store the place after these arrivals in the handler's transaction, where that is its home."""

    def take(self, arrivals: Sequence[A]) -> Sequence[A]:
        """Take arrivals as done before they are handled, for good. Return those that may be handled."""

    def acknowledge(self, arrivals: Sequence[A]) -> None:
        """Take arrivals as done: they do not arrive again after a restart."""

    def give_back(self, arrivals: Sequence[A]) -> None:
        """Take back the end of a batch that was halted: the next poll begins with it, as far as it is ours."""

    def dead_letter(self, letter: DeadLetter[A]) -> None:
        """Keep a record given up, untouched, with its cause. Returns once it is stored."""

    def postpone(self, letter: DeadLetter[A], after: timedelta) -> None:
        """Keep a record for another attempt after a while, untouched. Returns once it is stored."""

    def lag(self) -> Lag:
        """Return how far the group is behind."""

    def close(self) -> None:
        """Leave the group at once. What was acknowledged stays so."""
