"""latency.branch: a record sent to an event topic until a consumer of its branch has it, in both of Spark's modes.

Payments go at a steady rate to a topic of 4 partitions, one record at a time, acknowledged; a consumer on the two
branch topics takes the time each arrives. Real-time mode against micro-batches of the same query with the same Kafka
options, alternating, the best run of each; a run begins when records have come through for ``--warm`` seconds. What
it does not show: Debezium before the topic, a broker on a machine of its own, and rates near what a core can route.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.machine import Claim, write
from eventstore import Aggregate, Settings, event
from eventstore.event_types import event_type_of
from eventstore.kafka.admin import end_offsets, ensure_topics
from eventstore.kafka.consumer import RangeReader
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import SCHEMAS_TOPIC, event_topic, partition_of, schemas_topic
from factfold.stack import LocalStack, spark_jars
from projections import RouterOptions, branches, field, open_router
from projections.branching.router import BATCH_SECONDS
from projections.declaring.branches import Branches
from sample_app.story import Story

PARTITIONS = 4
MEDIAN, P99, RATIO = 15.0, 150.0, 0.1  # milliseconds, milliseconds, real-time mode by micro-batch


class Payment(Aggregate):
    """A payment of some amount."""

    @event
    class Received:
        """Some money came."""

        amount: Decimal


@dataclass(frozen=True)
class Latencies:
    """One run, in milliseconds."""

    median: float
    p99: float
    longest: float
    n: int


def main(
    seconds: Annotated[int, typer.Option(help="How long each run measures.")] = 60,
    rate: Annotated[int, typer.Option(help="Records a second.")] = 50,
    warm: Annotated[int, typer.Option(help="Seconds before each measurement.")] = 20,
    runs: Annotated[int, typer.Option(help="Alternating runs of each mode. The best counts.")] = 3,
    batch_seconds: Annotated[int, typer.Option(help="Length of a real-time batch.")] = BATCH_SECONDS,
) -> None:
    """Measure and write build/bench/branch.json."""
    story = Story("latency.branch")
    latencies: dict[str, list[Latencies]] = {"real-time": [], "micro-batch": []}
    with LocalStack("bench", ephemeral=True) as servers:
        settings = Settings.for_broker(servers.info.bootstrap_servers)
        for number in range(runs):
            for mode, results in latencies.items():
                with story.step(f"{mode} {number + 1}"):
                    run = _run(settings, mode, number, seconds=seconds, rate=rate, warm=warm, batch=batch_seconds)
                results.append(run)
                story.say(f"{mode}: {results[-1]}")
    _report(story, latencies, batch_seconds=batch_seconds, rate=rate)


def _run(settings: Settings, mode: str, number: int, *, seconds: int, rate: int, warm: int, batch: int) -> Latencies:
    topic = f"payment.{mode}.{number}"
    declared = branches(Payment, {"suspicious": field("amount") > 900}, otherwise="validated", topic=topic)
    _prepare(settings, topic)
    options = RouterOptions(mode=mode, batch_seconds=batch)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder, _routing(settings, declared, Path(folder), options):
        arrivals = Arrivals(settings, declared)
        sent = _send(settings, topic, rate=rate, seconds=warm + seconds)
        came = arrivals.wait(len(sent))
    began = min(sent.values()) + warm
    waits = sorted((came[key] - at) * 1_000 for key, at in sent.items() if at > began)
    return Latencies(
        median=round(statistics.median(waits), 1), p99=round(waits[int(len(waits) * 0.99)], 1),
        longest=round(waits[-1], 1), n=len(waits),
    )  # fmt: skip


def _prepare(settings: Settings, topic: str) -> None:
    ensure_topics(settings, [event_topic(topic, partitions=PARTITIONS), schemas_topic()])
    schemas = [kind.registered for kind in Payment.event_types.values()]
    RecordProducer(settings).send(
        OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(schema.id).encode(), value=schema.to_json()) for schema in schemas
    )


@contextmanager
def _routing(settings: Settings, declared: Branches, folder: Path, options: RouterOptions) -> Iterator[None]:
    """A router in a thread of this process: its work is in Spark's JVM, which is a process of its own."""
    stop = threading.Event()
    with open_router(settings, declared, checkpoints=folder, options=options, jars=spark_jars()) as router:
        thread = threading.Thread(target=router.run, kwargs={"stop": stop})
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)


def _send(settings: Settings, topic: str, *, rate: int, seconds: int) -> dict[bytes, float]:
    """Send at a steady rate, one acknowledged record at a time; the moments they were handed over, by key."""
    producer, sent = RecordProducer(settings), {}
    began = time.time()
    for number in range(rate * seconds):
        time.sleep(max(0.0, began + number / rate - time.time()))
        stream = f"payment-{number}"
        value = event_type_of(Payment.Received).encode(Payment.Received(amount=Decimal(number % 1_000)))
        key = f"{stream}@0".encode()
        sent[key] = time.time()
        producer.send([OutgoingRecord(topic=topic, key=key, value=value, partition=partition_of(stream, PARTITIONS))])
    return sent


class Arrivals:
    """Takes the time at which each record comes out of a branch topic, one consumer a topic."""

    def __init__(self, settings: Settings, declared: Branches) -> None:
        self._settings = settings
        self._came: dict[bytes, float] = {}
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(t,)) for t in declared.topics.values()]
        for thread in self._threads:
            thread.start()

    def wait(self, count: int, *, deadline: float = 120.0) -> dict[bytes, float]:
        """The moment of arrival of each record by its key, once there are so many."""
        until = time.monotonic() + deadline
        while len(self._came) < count and time.monotonic() < until:
            time.sleep(0.1)
        self._done.set()
        for thread in self._threads:
            thread.join(30)
        if len(self._came) < count:
            raise TimeoutError(f"{len(self._came)} of {count} records arrived within {deadline} s")
        return self._came

    def _read(self, topic: str) -> None:
        with RangeReader(self._settings) as reader:
            reader.seek(end_offsets(self._settings, [topic]))
            while not self._done.is_set():
                for record in reader.poll(0.5):
                    self._came.setdefault(record.key or b"", time.time())


def _report(story: Story, latencies: dict[str, list[Latencies]], *, batch_seconds: int, rate: int) -> None:
    """Medians and 99th percentiles, each the best of its runs."""
    claims = []
    for part, target in (("median", MEDIAN), ("p99", P99)):
        ours, other = (min(getattr(run, part) for run in latencies[mode]) for mode in ("real-time", "micro-batch"))
        claims.append(_claim(f"latency.branch.{part}", ours, other, target=target, met=ours <= target, runs=latencies))
    median = claims[0]
    met = median.ratio <= RATIO
    claims.append(_claim("latency.branch", median.ours, median.other, target=RATIO, met=met, runs=latencies))
    runs = {mode: [vars(run) for run in results] for mode, results in latencies.items()}
    path = write("branch", claims, batch_seconds=batch_seconds, rate=rate, all_runs=runs)
    story.say(f"written to {path}")


def _claim(id: str, ours: float, other: float, *, target: float, met: bool, runs: dict[str, list[Latencies]]) -> Claim:
    measured = runs["real-time"]
    return Claim(
        id, ours, other, "micro-batch", round(ours / other, 3), "ms", measured[0].n, len(measured), target, met
    )


if __name__ == "__main__":
    typer.run(main)
