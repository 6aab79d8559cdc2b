"""Sending records, idempotent, and placing keys as Kafka's Java client does.

A RecordProducer waits for its records. A Publisher sends a batch a transaction, and a new one fences the one before.

Records that a group gave up or put off, sent to topics of the group's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventstore.closing import Closing
from eventstore.delivery.source import DeadLetter
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import BrokerRefused, TopicMissing
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, broker_unreachable, ensure_topics, typed_errors
from eventstore.kafka.arrivals import RETRY_PREFIX, KafkaArrival, Retry, headers_of
from eventstore.kafka.consumer import as_bytes
from eventstore.settings import Settings
from eventstore.topics import (
    DEAD_LETTER_OMITTED,
    DEAD_LETTER_PREFIX,
    MAX_DEAD_LETTER_BYTES,
    TopicSpec,
    dead_letter_headers,
    dead_letter_topic,
)

if TYPE_CHECKING:
    from eventstore.backends.sql.outbox import OutboxRecord

_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"})
# A broker that restarts is back sooner. After a longer outage the writer starts again from the topic's end.
_PUBLISHING_SECONDS: Final = 30.0
# Readers of committed records wait this long for what a dead writer left open, unless a new one comes sooner.
_TRANSACTION_SECONDS: Final = 45
# librdkafka places a record by its key.
_BY_KEY: Final = -1

Delivered = Callable[[KafkaError | None, Message], None]
Row = dict[str, Any]  # `key` and `value`, texts or bytes; a tombstone's value is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """One record to send; `partition` None leaves the place to the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


class RecordProducer:
    """Sends records and waits until the broker has them."""

    def __init__(self, settings: Settings, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._servers = settings.kafka.bootstrap_servers
        self._deadline = deadline
        # A topic unknown after a fifth of the deadline is missing; the default of 30 s would outlive the deadline.
        unknown = {"topic.metadata.propagation.max.ms": int(deadline * 200)}
        self._producer = _producer(settings, deadline, {"enable.idempotence": True, **unknown})

    def send(self, records: Iterable[OutgoingRecord]) -> None:
        """Send records in order and return when all are stored; KafkaError where one is not."""
        failures: list[tuple[KafkaError, str | None]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append((error, message.topic()))

        for record in records:
            with typed_errors(self._servers, topic=record.topic):
                _produce(self._producer, record, delivered)
        if self._producer.flush(self._deadline + 1):
            raise broker_unreachable(self._servers, "records were not acknowledged in time")
        if failures:
            error, topic = failures[0]
            with typed_errors(self._servers, topic=topic):
                raise KafkaException(error)


def is_too_large(error: BaseException) -> bool:
    """Say whether a record was refused because of its size, by the client or by the broker."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].name() in _TOO_LARGE


class Publisher(Closing):
    """The one producer of a transactional id: opening it ends every earlier one, and what that had not committed.

    After any error it is of no more use: close it, and open another. ProducerFenced where another one was opened,
    BrokerUnreachable, BrokerRefused.
    """

    def __init__(self, settings: Settings, transactional_id: str, *, deadline: float = _PUBLISHING_SECONDS) -> None:
        self._servers, self._deadline = settings.kafka.bootstrap_servers, deadline
        # The id implies an idempotent producer, acks=all, and no reordering by retries.
        own = {"transactional.id": transactional_id, "transaction.timeout.ms": int(_TRANSACTION_SECONDS * 1000)}
        unknown = {"topic.metadata.propagation.max.ms": int(deadline * 1000)}
        self._producer = _producer(settings, deadline, own | unknown)
        with typed_errors(self._servers):
            # The abort markers of the last one are written when this returns, and its epoch is refused everywhere.
            self._producer.init_transactions(deadline)

    def send(self, records: Iterable[OutgoingRecord | OutboxRecord]) -> None:
        """Begin a transaction and send these records in order. `commit` raises what fails."""
        self._begin()
        for record in records:
            with typed_errors(self._servers, topic=record.topic):
                _produce(self._producer, record)

    def send_rows(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Begin a transaction and hand it the rows of each topic, in their order: partitions follow from their keys.

        At most 100,000 of all topics together, which is what librdkafka queues. BrokerRefused where one does not fit.
        """
        self._begin()
        for topic, messages in rows.items():
            self._producer.produce_batch(topic, list(messages))
            for refused in (message for message in messages if "_error" in message):
                with typed_errors(self._servers, topic=topic):
                    raise KafkaException(refused["_error"])

    def commit(self) -> None:
        """Wait for every record, then commit: all of them are in their topics, or none."""
        with typed_errors(self._servers):
            self._producer.commit_transaction(self._deadline)

    def close(self) -> None:
        """Throw away what is not committed, and leave the broker."""
        self._producer.purge()
        # A producer that is shut out has nothing to abort, and says so, by an error or by a warning.
        with suppress(KafkaException), catch_warnings(action="ignore", category=RuntimeWarning):
            self._producer.close()

    def _begin(self) -> None:
        with typed_errors(self._servers):
            self._producer.begin_transaction()


def _producer(settings: Settings, deadline: float, own: Mapping[str, Any]) -> Producer:
    given = {
        # librdkafka's own limit is 1,000,000 bytes: what a topic may hold, a dead letter of it may be.
        "message.max.bytes": MAX_DEAD_LETTER_BYTES,
        **settings.kafka.librdkafka_producer(),
        "log_level": 0,
        "delivery.timeout.ms": int(deadline * 1000),
    }
    return Producer({**given, **own})


def _produce(producer: Producer, record: OutgoingRecord | OutboxRecord, delivered: Delivered | None = None) -> None:
    """Hand a record to librdkafka, once there is room for it."""
    headers, partition = list(record.headers), _BY_KEY if record.partition is None else record.partition
    while True:
        try:
            producer.produce(
                record.topic, record.value, record.key, partition=partition, headers=headers, on_delivery=delivered
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


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
