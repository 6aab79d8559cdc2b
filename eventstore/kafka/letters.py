"""Records that a group gave up, sent to a topic of the group's own."""

from __future__ import annotations

from typing import Any

from eventstore.delivery.source import DeadLetter
from eventstore.errors import BrokerRefused, TopicMissing
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.kafka.arrivals import KafkaArrival, headers_of
from eventstore.kafka.producer import OutgoingRecord, RecordProducer, is_too_large
from eventstore.settings import Settings
from eventstore.subscriptions import Subscription
from eventstore.topics import DEAD_LETTER_OMITTED, DEAD_LETTER_PREFIX, dead_letter_headers, dead_letter_topic


class Letters:
    """Sends records of a subscription to its dead-letter topics."""

    def __init__(self, subscription: Subscription[..., Any], settings: Settings) -> None:
        self._subscription = subscription
        self._settings = settings
        self._producer = RecordProducer(settings)

    def ensure_topic(self, offsets: OffsetReader, topic: str) -> None:
        """Make the topic now rather than when it is needed; one that is there may be as its owner wants it."""
        name = self._subscription.dead_letter_topic_of(topic)
        try:
            offsets.partitions([name])
        except TopicMissing:
            ensure_topics(self._settings, [dead_letter_topic(name)])

    def bury(self, letter: DeadLetter[KafkaArrival]) -> None:
        """Send the untouched record to its dead-letter topic; returns once the broker has it. KafkaError.

        Of a record that no topic takes, as one that unpacks to much more, its place alone.
        """
        message = letter.arrival.message
        topic = letter.arrival.topic
        origin = (topic, message.partition() or 0, letter.arrival.offset)
        told = dead_letter_headers(
            origin,
            group=letter.group,
            error=letter.error,
            attempts=letter.attempts,
            time=letter.time,
            message=letter.message,
        )
        # A dead letter that was sent back and died again tells of its last death only.
        own = tuple(pair for pair in headers_of(message) if not pair[0].startswith(DEAD_LETTER_PREFIX))
        name = self._subscription.dead_letter_topic_of(topic)
        key, value = _bytes(message.key()), _bytes(message.value())
        try:
            self._producer.send([OutgoingRecord(topic=name, key=key, value=value, headers=own + told)])
        except BrokerRefused as refused:
            if not is_too_large(refused):
                raise
            left_out = ((DEAD_LETTER_OMITTED, str(len(value or b"")).encode()),)
            self._producer.send([OutgoingRecord(topic=name, key=None, value=None, headers=told + left_out)])


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
