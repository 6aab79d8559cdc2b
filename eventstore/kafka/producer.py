"""Sending records: idempotent, and placing keys as Kafka's Java client does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventstore.kafka.admin import DEADLINE_SECONDS, broker_unreachable, typed_errors
from eventstore.settings import Settings
from eventstore.topics import MAX_DEAD_LETTER_BYTES

_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"})


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
        self._producer = Producer(_producer_settings(settings, deadline))

    def send(self, records: Iterable[OutgoingRecord]) -> None:
        """Send records in order and return when all are stored; KafkaError where one is not."""
        failures: list[tuple[KafkaError, str | None]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append((error, message.topic()))

        for record in records:
            with typed_errors(self._servers, topic=record.topic):
                self._produce(record, delivered)
        if self._producer.flush(self._deadline + 1):
            raise broker_unreachable(self._servers, "records were not acknowledged in time")
        if failures:
            error, topic = failures[0]
            with typed_errors(self._servers, topic=topic):
                raise KafkaException(error)

    def _produce(self, record: OutgoingRecord, delivered: Any) -> None:
        arguments: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    on_delivery=delivered,
                    **arguments,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def is_too_large(error: BaseException) -> bool:
    """Say whether a record was refused because of its size, by the client or by the broker."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].name() in _TOO_LARGE


def _producer_settings(settings: Settings, deadline: float) -> dict[str, Any]:
    return {
        # librdkafka's own limit is 1,000,000 bytes: what a topic may hold, a dead letter of it may be.
        "message.max.bytes": MAX_DEAD_LETTER_BYTES,
        **settings.kafka.librdkafka_producer(),
        "log_level": 0,
        "enable.idempotence": True,
        "delivery.timeout.ms": int(deadline * 1000),
        # A topic unknown after this long is missing; the default of 30 s would outlive the deadline.
        "topic.metadata.propagation.max.ms": int(deadline * 200),
    }
