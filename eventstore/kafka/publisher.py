"""Records published a batch a transaction, by one writer at a time: a new writer fences the previous one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol
from warnings import catch_warnings

from confluent_kafka import KafkaException, Producer

from eventstore.closing import Closing
from eventstore.kafka.admin import typed_errors
from eventstore.settings import Settings
from eventstore.topics import MAX_DEAD_LETTER_BYTES

# A broker that restarts is back sooner. After a longer outage the writer starts again from the topic's end.
DEADLINE_SECONDS: Final = 30.0
# Readers of committed records wait this long for what a dead writer left open, unless a new one comes sooner.
_TRANSACTION_SECONDS: Final = 45

Row = dict[str, Any]  # `key` and `value`, texts or bytes; a tombstone's value is None


class Addressed(Protocol):
    """A record with its place: topic and partition."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def partition(self) -> int:
        """The partition of the topic."""

    @property
    def key(self) -> str | bytes | None:
        """The key."""

    @property
    def value(self) -> bytes | None:
        """The value, None for a tombstone."""

    @property
    def headers(self) -> list[tuple[str, Any]]:
        """The headers in their order."""


class Publisher(Closing):
    """The one producer of a transactional id: opening it ends every earlier one, and what that had not committed.

    After any error it is of no more use: close it, and open another. ProducerFenced where another one was opened,
    BrokerUnreachable, BrokerRefused.
    """

    def __init__(self, settings: Settings, transactional_id: str, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._servers, self._deadline = settings.kafka.bootstrap_servers, deadline
        self._producer = Producer(_producer_settings(settings, transactional_id, deadline))
        with typed_errors(self._servers):
            # The abort markers of the last one are written when this returns, and its epoch is refused everywhere.
            self._producer.init_transactions(deadline)

    def send(self, records: Iterable[Addressed]) -> None:
        """Begin a transaction and send these records in order. `commit` raises what fails."""
        self._begin()
        for record in records:
            with typed_errors(self._servers, topic=record.topic):
                self._produce(record)

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

    def _produce(self, record: Addressed) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    headers=record.headers,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def _producer_settings(settings: Settings, transactional_id: str, deadline: float) -> dict[str, Any]:
    return {
        # librdkafka's own limit is 1,000,000 bytes: the topic's is the one that counts.
        "message.max.bytes": MAX_DEAD_LETTER_BYTES,
        **settings.kafka.librdkafka_producer(),
        "log_level": 0,
        # Implies an idempotent producer, acks=all, and no reordering by retries.
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
        "delivery.timeout.ms": int(deadline * 1000),
        "topic.metadata.propagation.max.ms": int(deadline * 1000),
    }
