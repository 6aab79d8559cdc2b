"""Records that a group gave up or put off, sent to topics of the group's own."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock
from typing import Any

from eventstore.delivery.source import DeadLetter
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import BrokerRefused, TopicMissing
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.kafka.arrivals import RETRY_PREFIX, KafkaArrival, Retry, headers_of
from eventstore.kafka.consumer import as_bytes
from eventstore.kafka.producer import OutgoingRecord, RecordProducer, is_too_large
from eventstore.settings import Settings
from eventstore.topics import DEAD_LETTER_OMITTED, DEAD_LETTER_PREFIX, TopicSpec, dead_letter_headers, dead_letter_topic


class Letters:
    """Sends records of a subscription to its dead-letter topics and its retry topics."""

    def __init__(self, subscription: Subscription[..., Any], settings: Settings) -> None:
        self._subscription = subscription
        self._settings = settings
        self._producer = RecordProducer(settings)
        self._partitions: dict[str, int] = {}
        # The producer tells a sender of its failures while another one waits, too.
        self._sending = Lock()

    def ensure_topics(self, offsets: OffsetReader, topic: str) -> None:
        """Make the topics now rather than when they are needed; one that is there may be as its owner wants it."""
        self._ensure(offsets, dead_letter_topic(self._subscription.dead_letter_topic_of(topic)))
        if self._subscription.retry:
            name, stages = self._subscription.retry_topic_of(topic), len(self._subscription.retry)
            self._partitions[topic] = self._ensure(offsets, dead_letter_topic(name, partitions=stages + 1))

    def _ensure(self, offsets: OffsetReader, spec: TopicSpec) -> int:
        try:
            return offsets.partitions([spec.name])[spec.name]
        except TopicMissing:
            ensure_topics(self._settings, [spec])
            return spec.partitions

    def postpone(self, letter: DeadLetter[KafkaArrival], after: timedelta) -> None:
        """Send the record to its retry topic, due after a while; returns once the broker has it. KafkaError.

        Each delay has a partition: records behind each other there are due in their order. Partition 0 is left to
        replayed dead letters. A record that no topic takes becomes a dead letter.
        """
        arrival, number = letter.arrival, letter.arrival.retries + 1
        topic, partition, offset = _origin(arrival)
        retry = Retry(letter.time + after, number, _attempts(letter), topic, partition, offset)
        record = OutgoingRecord(
            topic=self._subscription.retry_topic_of(arrival.topic),
            key=as_bytes(arrival.message.key()),
            value=as_bytes(arrival.message.value()),
            headers=_own_headers(arrival) + retry.headers(),
            partition=min(number, self._partitions[arrival.topic] - 1),
        )
        try:
            self._send(record)
        except BrokerRefused as refused:
            if not is_too_large(refused):
                raise
            self.bury(letter)

    def bury(self, letter: DeadLetter[KafkaArrival]) -> None:
        """Send the untouched record to its dead-letter topic; returns once the broker has it. KafkaError.

        Of a record that no topic takes, as one that unpacks to much more, its place alone.
        """
        message = letter.arrival.message
        topic = letter.arrival.topic
        added = dead_letter_headers(
            _origin(letter.arrival),
            group=letter.group,
            error=letter.error,
            attempts=_attempts(letter),
            time=letter.time,
            message=letter.message,
        )
        own = _own_headers(letter.arrival)
        name = self._subscription.dead_letter_topic_of(topic)
        key, value = as_bytes(message.key()), as_bytes(message.value())
        try:
            self._send(OutgoingRecord(topic=name, key=key, value=value, headers=own + added))
        except BrokerRefused as refused:
            if not is_too_large(refused):
                raise
            left_out = ((DEAD_LETTER_OMITTED, str(len(value or b"")).encode()),)
            self._send(OutgoingRecord(topic=name, key=None, value=None, headers=added + left_out))

    def _send(self, record: OutgoingRecord) -> None:
        with self._sending:
            self._producer.send([record])


def _origin(arrival: KafkaArrival) -> tuple[str, int, int]:
    message, retry = arrival.message, arrival.retry
    if retry is not None:
        return retry.topic, retry.partition, retry.offset
    return message.topic() or "", message.partition() or 0, arrival.offset


def _attempts(letter: DeadLetter[KafkaArrival]) -> int:
    """Of a queue's record each delivery was one, those included that ended with their worker."""
    arrival = letter.arrival
    return letter.attempts + (arrival.deliveries - 1 if arrival.retry is None else arrival.retry.attempts)


def _own_headers(arrival: KafkaArrival) -> tuple[tuple[str, bytes | None], ...]:
    """A dead letter that was sent back and died again tells of its last death only."""
    prefixes = (DEAD_LETTER_PREFIX, RETRY_PREFIX)
    return tuple(pair for pair in headers_of(arrival.message) if not pair[0].startswith(prefixes))
