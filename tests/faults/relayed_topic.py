"""A topic of tiny segments that a relay fills, its load, what the broker made of it, and its cleaning by force."""

from __future__ import annotations

import random
import threading
import time

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.relay import relay_status
from tests.crates import fill
from tests.waiting import wait_until

PARTITIONS = 3
STREAMS = 200
# A megabyte is the smallest size Kafka allows; a tenth of a second makes segments of a few hundred records.
TINY_SEGMENTS = {
    "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0", "max.compaction.lag.ms": "1", "delete.retention.ms": "1"
}  # fmt: skip
# The deletion of a stream that never was: readers of the topic pass over it.
CANARY = b"crate-canary@0"
HOUR = 3_600_000  # milliseconds
CLEANING_PATIENCE = 900.0  # seconds: two million records in thousands of tiny segments took more than two minutes


class Load:
    """Writers that append without a pause, each to streams that others append to as well."""

    def __init__(self, store, *, seed, writers=3):
        self._store, self._stop = store, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(seed + n,)) for n in range(writers)]

    def _write(self, seed):
        chosen = random.Random(seed)
        while not self._stop.is_set():
            fill(self._store, *sorted(chosen.sample(range(STREAMS), 3)), times=chosen.randint(1, 8))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


class Topic:
    """A topic as the broker has it: open transactions, dead records, forced cleaning."""

    def __init__(self, settings, name):
        self.settings, self.name = settings, name
        self._admin = AdminClient(settings.kafka.librdkafka())

    def records(self, *, start=None):
        """Those that are committed, from offsets by partition on; all of them unless told otherwise."""
        return list(read_range(self.settings, self.name, start=start))

    def in_transaction(self):
        """How many records are there that nobody has committed or aborted yet."""
        last = self.ends(IsolationLevel.READ_UNCOMMITTED)
        return sum(last.values()) - sum(self.ends().values())

    def left_behind(self):
        """How many a dead writer left so; a commit it had asked for is brought to its end by the broker meanwhile."""
        time.sleep(0.5)
        return self.in_transaction()

    def ends(self, level=IsolationLevel.READ_COMMITTED):
        """The offsets, by partition, behind the last record."""
        asked = {TopicPartition(self.name, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        answers = self._admin.list_offsets(asked, isolation_level=level)
        return {place.partition: answer.result(10).offset for place, answer in answers.items()}

    def uncommitted_too(self):
        """How many records there are, those of aborted transactions included."""
        consumer = Consumer({
            **self.settings.kafka.librdkafka(), "group.id": "any", "isolation.level": "read_uncommitted",
            "enable.partition.eof": True, "auto.offset.reset": "earliest",
        })  # fmt: skip
        consumer.assign([TopicPartition(self.name, partition, 0) for partition in range(PARTITIONS)])
        counted, ended = 0, set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(1000, 1):
                if message.error():
                    ended.add(message.partition())
                counted += message.error() is None and message.value() is not None
        consumer.close()
        return counted

    def keep_uncleaned(self, milliseconds):
        """Let the broker, whose cleaner comes when it likes, compact nothing that is younger."""
        lags = {"min.compaction.lag.ms": str(milliseconds), "max.compaction.lag.ms": str(max(milliseconds, 1))}
        alter(self._admin, ResourceType.TOPIC, self.name, lags)

    def clean(self):
        """Have the broker compact all that is there: until canaries sent behind it have taken each other away."""
        producer = RecordProducer(self.settings)
        start, marks = self.ends(), {}

        def is_cleaned():
            producer.send(
                [OutgoingRecord(topic=self.name, key=CANARY, value=None, partition=n) for n in range(PARTITIONS)]
            )
            found = [record for record in self.records(start=start) if record.key == CANARY]
            for record in found:
                marks.setdefault(record.partition, record.offset)
            left = {(record.partition, record.offset) for record in found}
            return left.isdisjoint(marks.items())

        wait_until(is_cleaned, within=CLEANING_PATIENCE, what="the cleaning", pause=0.3)


def alter(admin, kind, name, values, *, operation=AlterConfigOpType.SET):
    """Set, or reset, what a topic or a broker is configured by."""
    entries = [ConfigEntry(each, value, incremental_operation=operation) for each, value in values.items()]
    for answer in admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values():
        answer.result(10)


def waiting(store, settings):
    return sum(category.events for category in relay_status(store, settings).waiting)


def wait_for_the_last(store, settings, relay):
    """Wait until the topic holds every event, however many it lacks, as long as it comes to lack fewer."""
    while left := waiting(store, settings):
        wait_until(
            lambda left=left: waiting(store, settings) < left, alive=relay.require_alive, what="progress", pause=0.2
        )
