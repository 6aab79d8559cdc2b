"""T4: the broker is killed with -9 while records are sent; every acknowledged one is readable, in order for each key.

FACTFOLD_KILLS sets how often (1 with 10,000 records in make test, 5 with 100,000 in make faults, 50 with a million in
make faults-full).
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import defaultdict

import pytest

from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import event_topic
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
RECORDS = 10_000 if KILLS == 1 else 20_000 * KILLS
KEYS, CHUNK = 100, 200


def new_topic(settings):
    name = f"reading_{uuid.uuid4().hex[:8]}"
    ensure_topics(settings, [event_topic(name, partitions=4)])
    return name


class Sender:
    """Sends numbered records in a thread; ``acknowledged`` counts those that the broker was said to have."""

    def __init__(self, topic, send):
        self.acknowledged = 0
        self._topic, self._send = topic, send
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        for start in range(0, RECORDS, CHUNK):
            numbers = range(start, start + CHUNK)
            # Many versions of few streams: a key of an event topic is never repeated.
            self._send([OutgoingRecord(topic=self._topic, key=key_of(n), value=b"%d" % n) for n in numbers])
            self.acknowledged = numbers.stop

    def require_alive(self):
        assert self._thread.is_alive() or self.acknowledged == RECORDS, "sending failed"

    def finish(self):
        self._thread.join(240)
        self.require_alive()


def key_of(number):
    return b"reading-%d" % (number % KEYS)


def kill_while_sending(stack, sender):
    """Kill the broker at even distances; each time it comes back at once."""
    for kill in range(1, KILLS + 1):
        wait_until(
            lambda wanted=RECORDS * kill // (KILLS + 1): sender.acknowledged >= wanted,
            alive=sender.require_alive, what="acknowledged records", pause=0.001,
        )  # fmt: skip
        stack.kill("kafka")
        assert sender.acknowledged < RECORDS, "there was nothing left to send when the broker was killed"
        stack.start("kafka")
    sender.finish()


def wrong(settings, topic, acknowledged):
    """Acknowledged numbers that cannot be read, and keys whose numbers came out of order."""
    found = defaultdict(list)
    for record in read_range(settings, topic):
        found[record.key].append(int(record.value))
    lost = set(range(acknowledged)) - {number for numbers in found.values() for number in numbers}
    return lost, [key for key, numbers in found.items() if numbers != sorted(set(numbers))]


@pytest.mark.timeout(max(300, 60 * KILLS))
def test_every_acknowledged_record_is_readable_and_every_key_in_order(stack, settings):
    producer, topic = RecordProducer(settings, deadline=120), new_topic(settings)
    sender = Sender(topic, producer.send)
    kill_while_sending(stack, sender)
    assert wrong(settings, topic, sender.acknowledged) == (set(), []), f"FACTFOLD_KILLS={KILLS}"
