"""T9: the relay is killed with -9 in the middle of its transactions, then its topic is cleaned by force.

Every event is in the topic once, each stream in its order; afterwards compaction has nothing to take but what the dead
left behind. FACTFOLD_KILLS sets how often it is killed: once in make test, 10 times in make faults (5, twice each).
The planted faults: relays that resume from the start of their last batch, or from a checkpoint file that is written
after the commit or before it.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)

from eventstore import Relay, Settings, relay_status
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import TopicSpec, event_topic
from tests.crates import crate_store, faults, fill, topic_of
from tests.faults.command_process import CommandProcess
from tests.waiting import wait_until

GIVEN = int(os.environ.get("FACTFOLD_KILLS", "1"))
KILLS = 1 if GIVEN == 1 else 2 * GIVEN
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
PARTITIONS = 3
STREAMS = 200
# Four full pages: the relay is in a transaction most of the time.
BACKLOG = 20_000
# A megabyte is the smallest size Kafka allows; a tenth of a second makes segments of a few hundred records.
TINY_SEGMENTS = {
    "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0", "max.compaction.lag.ms": "1", "delete.retention.ms": "1"
}  # fmt: skip
CANARY = b"canary"


@pytest.fixture
def settings(stack):
    return Settings.for_broker(stack.info.bootstrap_servers)


@pytest.fixture
def store(database, settings):
    """A store whose topic is of tiny segments."""
    store = crate_store(database(), partitions=PARTITIONS)
    wanted = event_topic(topic_of(store), partitions=PARTITIONS)
    ensure_topics(settings, [TopicSpec(wanted.name, PARTITIONS, {**wanted.config, **TINY_SEGMENTS})])
    yield store
    store.close()


@pytest.fixture
def start(store, settings, tmp_path):
    """A function that starts `factfold relay run`; what still runs at the end stops in peace."""
    started = []

    def start(*options, name="relay", module="factfold", **more):
        environment = {
            "FACTFOLD_DATABASE": store.engine.url.render_as_string(hide_password=False),
            "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            **more,
        }
        command = ["relay", "run", "--json", *options]
        process = CommandProcess(command, environment, tmp_path / f"{name}.log", module=module)
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


class Load:
    """Writers that append without a pause, each to streams that others append to as well."""

    def __init__(self, store, *, writers=3):
        self._store, self._stop = store, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(SEED + n,)) for n in range(writers)]

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

    def records(self):
        return list(read_range(self.settings, self.name))

    def in_transaction(self):
        """How many records are there that nobody has committed or aborted yet."""
        stable, last = (self._ends(level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED))
        return sum(last.values()) - sum(stable.values())

    def left_behind(self):
        """How many a dead writer left so; a commit it had asked for is brought to its end by the broker meanwhile."""
        time.sleep(0.5)
        return self.in_transaction()

    def _ends(self, level):
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

    def clean(self):
        """Have the broker compact all that is there: until canaries sent behind it have taken each other away."""
        producer = RecordProducer(self.settings)
        marks = {}

        def is_cleaned():
            producer.send(
                [OutgoingRecord(topic=self.name, key=CANARY, value=None, partition=n) for n in range(PARTITIONS)]
            )
            found = [record for record in self.records() if record.key == CANARY]
            for record in found:
                marks.setdefault(record.partition, record.offset)
            left = {(record.partition, record.offset) for record in found}
            return left.isdisjoint(marks.items())

        wait_until(is_cleaned, what="the cleaning", pause=0.3)


@pytest.fixture
def topic(settings, store):
    return Topic(settings, topic_of(store))


@pytest.fixture
def eager_cleaner(settings):
    """The broker looks every 0.2 s for something to clean, and not every 15."""
    admin = AdminClient(settings.kafka.librdkafka())

    def alter(operation, value):
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(10)

    alter(AlterConfigOpType.SET, "200")
    yield
    alter(AlterConfigOpType.DELETE, None)


@pytest.mark.timeout(200 + 40 * KILLS)
def test_every_event_is_in_the_topic_once_and_in_order_though_the_relay_is_killed_and_the_topic_cleaned(
    store, settings, start, topic, eager_cleaner, capsys
):
    relay, moment, dead = start(), random.Random(SEED), list[int]()
    with Load(store):
        while sum(count > 0 for count in dead) < KILLS:
            fill(store, *range(STREAMS, 2 * STREAMS), times=BACKLOG // STREAMS)
            # The transaction of the one before it is ended by then: what is open afterwards is its own.
            led = len(dead) + 1
            wait_until(lambda led=led: relay.said.count('"leading"') == led, alive=relay.require_alive, what="a leader")
            wait_until(topic.in_transaction, alive=relay.require_alive, what="a transaction", pause=0)
            # The moment of the kill, and no wait for anything: half of them at once, while the batch is on its way.
            time.sleep(max(0.0, moment.uniform(-0.2, 0.2)))
            relay.kill()
            dead.append(topic.left_behind())
            relay.restart()
    wait_until(lambda: waiting(store, settings) == 0, alive=relay.require_alive, what="the last event", pause=0.2)
    assert relay.stop() == 0
    records = topic.records()
    with capsys.disabled():
        sys.stdout.write(
            f"\nreplay: FACTFOLD_KILLS={GIVEN} FACTFOLD_SEED={SEED} pytest tests/faults/test_relay_killed.py; "
            f"{len(records):,} events; killed with {dead} records in an open transaction\n"
        )
    assert faults(store, records) == {}
    topic.clean()
    assert topic.uncommitted_too() == len(records)
    assert faults(store, topic.records()) == {}
    fill(store, *range(STREAMS))
    assert Relay(store, settings).run(stop=threading.Event(), once=True).events == STREAMS
    assert faults(store, topic.records()) == {}


def waiting(store, settings):
    return sum(category.events for category in relay_status(store, settings).waiting)


def test_the_second_relay_takes_over_from_one_that_is_killed(store, settings, start, topic):
    with Load(store):
        first = start(name="first")
        wait_until(lambda: '"leading"' in first.said, alive=first.require_alive)
        second = start(name="second")
        wait_until(lambda: '"standing by"' in second.said, alive=second.require_alive)
        assert '"leading"' not in second.said
        wait_until(topic.in_transaction, alive=first.require_alive, what="a transaction", pause=0)
        first.kill()
        wait_until(lambda: '"leading"' in second.said, alive=second.require_alive)
    wait_until(lambda: waiting(store, settings) == 0, alive=second.require_alive, what="the last event", pause=0.2)
    assert second.stop() == 0
    assert faults(store, topic.records()) == {}


@pytest.mark.parametrize(
    ("mutant", "seen"),
    [("last batch", {"repeated", "disordered"}), ("checkpoint after", {"repeated", "disordered"}),
     ("checkpoint before", {"missing"})],
)  # fmt: skip
def test_the_planted_fault_is_seen_a_place_beside_the_topic(store, start, topic, tmp_path, mutant, seen):
    planted = {"FACTFOLD_TEST_MUTANT": mutant, "FACTFOLD_TEST_PLACE": str(tmp_path / "place")}
    fill(store, *range(4), times=20)
    killed = start("--once", module="tests.faults.mutant_relays", FACTFOLD_TEST_DIE="2", **planted)
    assert killed.wait() == -9
    again = start("--once", module="tests.faults.mutant_relays", **planted)
    assert again.wait() == 0, again.said
    assert set(faults(store, topic.records())) == seen


def test_the_planted_fault_is_seen_after_compaction_too_records_that_come_again(
    store, settings, start, topic, tmp_path, eager_cleaner
):
    """Nothing is missing then and nothing there twice: but old versions stand behind newer ones."""
    planted = {"FACTFOLD_TEST_MUTANT": "last batch", "FACTFOLD_TEST_PLACE": str(tmp_path / "place")}
    fill(store, *range(4), times=20)
    Relay(store, settings).run(stop=threading.Event(), once=True)
    killed = start("--once", module="tests.faults.mutant_relays", FACTFOLD_TEST_DIE="1", **planted)
    assert killed.wait() == -9
    repeated = Counter(record.key for record in topic.records())
    assert sum(times > 1 for times in repeated.values()) == 10
    topic.clean()
    assert set(faults(store, topic.records())) == {"disordered"}
