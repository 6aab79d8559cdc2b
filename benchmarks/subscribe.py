"""subscribe.bare: a subscription that is effectively once, against a bare confluent-kafka loop.

The bare loop is what one writes by hand: consume in batches, decode Avro into a dictionary, call the handler, commit
the offsets in the background; no inbox, no typed event, no retry. Ours does the same records with the inbox in
PostgreSQL, the handler in its transaction. Same topic, same fetch settings, a new group each run, best of the runs,
alternating; the first batch, which waits for the group, is not counted. The output adds the rates of the other
guarantees, and of transactions of one record. What it does not show: a handler that does something, servers on machines
of their own, several members.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import sqlalchemy as sa
import typer
from confluent_kafka import Consumer

from benchmarks.machine import at_least, write
from eventstore import Aggregate, Settings, event, open_subscriber, subscription
from eventstore.delivery.subscriptions import Guarantee, Subscription
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import TopicSchemas
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import SCHEMAS_TOPIC, branch_topic, schemas_topic
from factfold.stack import LocalStack
from sample_app.story import Story

TARGET = 0.3
PARTITIONS = 4
BATCH = 2000


class Payment(Aggregate):
    """What the records hold: about 60 bytes of Avro under 11 headers."""

    @event
    class Received:
        """A payment with the fields payments have."""

        payment_id: str
        order_id: str
        customer_id: int
        amount: Decimal


def main(
    records: Annotated[int, typer.Option(help="How many records.")] = 200_000,
    single: Annotated[int, typer.Option(help="How many of them in transactions of one record.")] = 2_000,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Use the servers of this stack.")] = None,
) -> None:
    """Measure and write build/bench/subscribe.json."""
    story = Story("subscribe.bare")
    with served(story, stack, records) as (settings, engine, topic):
        measured = [_round(story, settings, engine, topic, records) for _ in range(runs)]
        single_rate = rate(ours(settings, engine, _declared(topic, batch=1)), single)
    best = {name: max(round[name] for round in measured) for name in measured[0]} | {"one_by_one": single_rate}
    _report(story, best, records=records, runs=runs)


@contextmanager
def served(story: Story, stack: str | None, records: int) -> Iterator[tuple[Settings, sa.Engine, str]]:
    """Servers with a topic of so many records: settings of the broker, an engine of the database, the topic's name."""
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers:
        settings = Settings.for_broker(servers.info.bootstrap_servers)
        engine = sa.create_engine(servers.info.postgres.url())
        with story.step(f"{records:,} records sent"):
            topic = _filled(settings, records)
        # As `factfold subscriptions run` does; both loops gain, ours more, since it keeps a batch of events.
        gc.freeze()
        yield settings, engine, topic
        engine.dispose()


def _round(story: Story, settings: Settings, engine: sa.Engine, topic: str, records: int) -> dict[str, float]:
    rates = {
        "consumed": rate(bare(settings, topic, decode=False), records),
        "bare": rate(bare(settings, topic, decode=True), records),
        "effectively_once": rate(ours(settings, engine, _declared(topic)), records),
        "at_least_once": rate(ours(settings, engine, _declared(topic, guarantee="at-least-once")), records),
    }
    story.say(", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) + " records/s")
    return rates


def rate(batches: Generator[int, None, None], records: int) -> float:
    """Records a second, from the end of the first batch on."""
    done = first = _first(batches)
    begun = time.perf_counter()
    while done < records:
        done += next(batches)
    seconds = time.perf_counter() - begun
    batches.close()
    return (done - first) / seconds


def _first(batches: Generator[int, None, None]) -> int:
    return next(size for size in batches if size)


def bare(settings: Settings, topic: str, *, decode: bool) -> Generator[int, None, None]:
    """Consume in batches, decode each value if ``decode`` is true, call a function, commit. Yields batch sizes."""
    consumer, seen = Consumer(_bare_settings(settings)), [0]
    decoder = AvroDecoder(TopicSchemas(settings).schema)
    consumer.subscribe([topic])
    try:
        while True:
            messages = consumer.consume(BATCH, 0.2)
            for message in messages:
                if decode:
                    _handle(seen, decoder.decode(message.value())[1])  # type: ignore[arg-type]
            if messages:
                consumer.commit(asynchronous=True)
            yield len(messages)
    finally:
        consumer.close()


def ours(settings: Settings, engine: sa.Engine, declared: Subscription[..., Any]) -> Generator[int, None, None]:
    """Deliver batches; yields their sizes."""
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        while True:
            yield subscriber.run_once(timeout=0.2).handled


def _declared(topic: str, *, guarantee: Guarantee = "effectively-once", batch: int = BATCH) -> Subscription[..., Any]:
    seen = [0]

    def handle(event: Payment.Received, tx: sa.Connection) -> None:
        seen[0] += 1

    return subscription(topic, group=uuid.uuid4().hex, guarantee=guarantee, batch=batch)(handle)


def _handle(seen: list[int], event: Any) -> None:
    seen[0] += 1


def _bare_settings(settings: Settings) -> dict[str, Any]:
    return {
        **settings.kafka.librdkafka(),
        "group.id": uuid.uuid4().hex,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
    }


def _filled(settings: Settings, records: int) -> str:
    """Send records to a new topic, and return its name."""
    topic, producer = f"payment.{uuid.uuid4().hex[:8]}", RecordProducer(settings, deadline=120)
    ensure_topics(settings, [branch_topic(topic, partitions=PARTITIONS), schemas_topic()])
    kinds = [kind.registered for kind in Payment.event_types.values()]
    producer.send(OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(k.id).encode(), value=k.to_json()) for k in kinds)
    producer.send(_records(topic, records))
    return topic


def _records(topic: str, count: int) -> Iterable[OutgoingRecord]:
    kind, now = event_type_of(Payment.Received), datetime.now(UTC).isoformat()
    for n in range(count):
        paid = Payment.Received(payment_id=f"p{n}", order_id=f"o{n}", customer_id=n % 1000, amount=Decimal(n % 1000))
        yield OutgoingRecord(
            topic=topic,
            key=f"payment-{n}@0".encode(),
            value=kind.encode(paid),
            headers=tuple((name, text.encode()) for name, text in _headers(kind.name, n, now).items()),
        )


def _headers(kind: str, n: int, now: str) -> dict[str, str]:
    return {
        "content-type": "application/avro",
        "ce_specversion": "1.0",
        "ce_id": str(uuid.uuid4()),
        "ce_type": kind,
        "ce_source": "/payments",
        "ce_subject": f"payment-{n}",
        "ce_time": now,
        "ce_streamversion": "0",
        "ce_position": str(n + 1),
        "ce_correlationid": str(uuid.uuid4()),
        "ce_causationid": str(uuid.uuid4()),
    }


def _report(story: Story, best: dict[str, float], *, records: int, runs: int) -> None:
    claim = at_least(
        "subscribe.bare", ours=best["effectively_once"], other=best["bare"],
        other_name="confluent-kafka loop with Avro, no inbox", unit="records/s", n=records, runs=runs, target=TARGET,
    )  # fmt: skip
    path = write("subscribe", [claim], rates={name: round(rate) for name, rate in best.items()})
    story.say(f"subscribe.bare {claim.ratio} (target {TARGET}), one by one {best['one_by_one']:,.0f}: {path}")


if __name__ == "__main__":
    typer.run(main)
