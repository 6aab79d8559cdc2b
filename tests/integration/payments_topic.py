"""A topic of payments in the fixed record layout."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from eventstore import Settings
from eventstore.event_types import event_type_of
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import SCHEMAS_TOPIC, branch_topic, partition_of, schemas_topic
from tests.ledger import Payment

PARTITIONS = 4


class PaymentsTopic:
    """A branch topic with a name of its own; its schemas are registered."""

    def __init__(self, settings: Settings, *, name: str | None = None, partitions: int = PARTITIONS) -> None:
        self.name = name or f"payment.{uuid.uuid4().hex[:8]}"
        self.settings = settings
        self._producer = RecordProducer(settings)
        ensure_topics(settings, [branch_topic(self.name, partitions=partitions), schemas_topic()])
        kinds = [kind.registered for kind in Payment.event_types.values()]
        self.put([OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(k.id).encode(), value=k.to_json()) for k in kinds])

    def put(self, records: list[OutgoingRecord]) -> None:
        """Send records as they are."""
        self._producer.send(records)

    def receive(self, amounts: range | list[int], *, partition: int | None = None) -> list[OutgoingRecord]:
        """Send a payment of each amount, spread over the partitions by its stream."""
        records = [self.record(Payment.Received(amount=amount), partition=partition) for amount in amounts]
        self.put(records)
        return records

    def record(self, event: Any, *, partition: int | None = None, **changes: Any) -> OutgoingRecord:
        """Lay an event out as the outbox does; `changes` replace headers (None removes one) or the `value`."""
        kind, stream = event_type_of(event), f"payment-{event.amount}"
        value = changes.pop("value", None)
        headers = {
            "content-type": "application/avro",
            "ce_specversion": "1.0",
            "ce_id": str(uuid.uuid4()),
            "ce_type": kind.name,
            "ce_source": "/payments",
            "ce_subject": stream,
            "ce_time": datetime.now(UTC).isoformat(),
            "ce_streamversion": "0",
            "ce_position": str(event.amount + 1),
            "ce_correlationid": str(uuid.uuid4()),
            "ce_causationid": str(uuid.uuid4()),
        } | changes
        return OutgoingRecord(
            topic=self.name,
            key=f"{stream}@0".encode(),
            value=kind.encode(event) if value is None else value,
            headers=tuple((name, text.encode()) for name, text in headers.items() if text is not None),
            partition=partition_of(stream, PARTITIONS) if partition is None else partition,
        )
