"""Batches of records that the client cannot unpack: named by their place, and passed over as a whole.

A producer compresses records by the batch. A few kilobytes may grow to hundreds of megabytes; librdkafka gives zstd up
above `receive.message.max.bytes`, says so for the batch's first offset, and stays there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from eventstore.errors import RecordsUnreadable

# What grows beyond the limit, is damaged, or was compressed in a way that this client does not know.
_UNREADABLE: Final = frozenset({"_BAD_COMPRESSION", "_BAD_MSG", "_NOT_IMPLEMENTED", "MSG_SIZE_TOO_LARGE"})


def is_unreadable(message: Message) -> bool:
    """Say whether a message is the client's error about a batch at a place."""
    problem, offset = message.error(), message.offset()
    return problem is not None and problem.name() in _UNREADABLE and offset is not None and offset >= 0


def unreadable(message: Message) -> RecordsUnreadable:
    """Build the error for a batch that begins with this offset."""
    problem, topic, partition = message.error(), message.topic() or "", message.partition() or 0
    offset = message.offset() or 0
    why = "" if problem is None else problem.str()
    return RecordsUnreadable(
        f"the records of {topic!r} from offset {offset} of partition {partition} on cannot be unpacked: {why}",
        remedy="raise receive.message.max.bytes in the Kafka settings' extra_librdkafka if they are meant to be so "
        "large. Otherwise pass over them, as a subscription does by unreadable='dead-letter'",
        topic=topic,
        partition=partition,
        offset=offset,
    )


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Takes the place of the messages of a batch that cannot be unpacked; `end` is the offset after it."""

    of: str
    number: int
    first: int
    end: int

    def topic(self) -> str:
        """Return the topic."""
        return self.of

    def partition(self) -> int:
        """Return the partition."""
        return self.number

    def offset(self) -> int:
        """Return the last offset, behind which the group goes on."""
        return self.end - 1

    def key(self) -> None:
        """Return nothing: it is packed."""

    def value(self) -> None:
        """Return nothing: it is packed."""

    def headers(self) -> None:
        """Return nothing: they are packed."""
