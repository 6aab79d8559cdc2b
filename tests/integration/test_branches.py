"""Branches on real Kafka: a router in real-time mode, as a process of its own, and what it does with every record."""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections import Counter
from decimal import Decimal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eventstore.errors import KafkaError
from eventstore.fields.serialization import AvroEncoder
from eventstore.kafka.admin import end_offsets
from eventstore.kafka.consumer import read_range, read_schemas
from eventstore.kafka.groups import offsets_behind
from eventstore.kafka.producer import RecordProducer
from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import BRANCH_HEADER, DEAD_LETTER_PREFIX
from projections import branches_status
from projections.branching.checkpoint import RouterCheckpoint
from projections.declaring.branches import Branches
from tests.integration import payment_branches
from tests.integration.log_writer import LogWriter
from tests.integration.payments_of_every_kind import Address, Method, Payment
from tests.integration.router_process import RouterProcess
from tests.reference import route

CE = (("ce_time", b"2024-05-01T12:00:00.000001Z"), ("ce_id", uuid.uuid4().hex.encode()), ("empty", None))


def received(amount, **more):
    fields = dict.fromkeys(
        ["wide", "count", "ratio", "share", "note", "flag", "day", "at", "customer", "method", "currency", "address"]
    )
    return Payment.Received(amount=Decimal(amount), **(fields | more))


def newer(name, **fields):
    """A schema that a newer release of the payments would register."""
    declared = [{"name": field, "type": kind} for field, kind in fields.items()]
    return RegisteredSchema.of({"type": "record", "namespace": "payment", "name": name, "fields": declared})


class Routed:
    """A topic of payments, the router over it, and its branch topics."""

    def __init__(self, settings, folder, *options):
        self.settings, self.folder, self.options = settings, folder, options
        self.writer = LogWriter(settings, Payment)
        self.topic = self.writer.events_topic
        self.branches: Branches = dataclasses.replace(payment_branches.payments, topic=self.topic)
        self.sent = 0
        self.router: RouterProcess | None = None
        self.start(*options)

    def start(self, *options):
        if self.router:
            self.router.close()
        self.router = RouterProcess(self.settings.kafka.bootstrap_servers, self.topic, self.folder, *options)

    def send(self, *records):
        self.writer.send(list(records))
        self.sent += len(records)

    def event(self, identity, event, **more):
        return dataclasses.replace(self.writer.event(identity, event), headers=CE, **more)

    def source(self):
        return list(read_range(self.settings, self.topic))

    def found(self):
        """The records of every branch topic and of the dead-letter topic."""
        topics = [*self.branches.topics.values(), self.branches.dead_letter_topic]
        return [record for topic in topics for record in read_range(self.settings, topic)]

    def keys(self):
        try:
            return {record.key for record in self.found()}
        except KafkaError:  # the router makes its topics, and a leader takes a moment to be known
            return set()

    def wait_for(self, *records, within=200.0):
        """Wait until the records that were sent have arrived somewhere."""
        wanted = {record.key for record in records}
        self.router.wait_until(lambda: wanted <= self.keys(), within=within, what="routing")

    def where(self, record):
        (topic,) = {found.topic for found in self.found() if found.key == record.key}
        return topic.removeprefix(f"{self.topic}.")

    def wait_until_committed(self, record):
        """Wait until the router's Spark checkpoint lies behind a record."""
        (place,) = {(r.partition, r.offset) for r in self.source() if r.key == record.key}
        checkpoint = RouterCheckpoint.of(self.branches, self.router.checkpoints)

        def committed():
            return (checkpoint.committed() or {}).get(place[0], 0) > place[1]

        self.router.wait_until(committed, what="a commit")

    def assert_routed_as_declared(self):
        """Every record of the source is where plain Python puts it, whole; anywhere else is nothing."""
        expected = {
            (record.key, record.partition, record.value, record.headers, topic)
            for record, topic, _ in route(self.branches, self.source(), read_schemas(self.settings))
        }
        found = {
            (
                r.key,
                r.partition,
                r.value,
                tuple(h for h in r.headers if not h[0].startswith((BRANCH_HEADER, DEAD_LETTER_PREFIX))),
                r.topic,
            )
            for r in self.found()
        }
        assert found == expected


@pytest.fixture(scope="module")
def routed(settings, tmp_path_factory):
    found = Routed(settings, tmp_path_factory.mktemp("router"), "--batch-seconds", "5")
    yield found
    found.router.close()


def headers(record):
    return {name: None if value is None else value.decode() for name, value in record.headers}


def test_every_record_is_in_exactly_one_branch_or_a_dead_letter_with_nothing_changed_but_headers(routed):
    events = [
        received(901), received(900), received("900.0001"), received(5, method=Method.CASH),
        received(5, address=Address("XX", [])), received(5, address=Address("DE", ["a"])),
        received(2000, method=Method.CASH), Payment.Refunded(amount=None, reason="late"),
        Payment.Refunded(amount=Decimal(1000), reason=""), Payment.Closed(),
    ]  # fmt: skip
    records = [routed.event(f"p{number % 7}", events[number % len(events)]) for number in range(100)]
    bare = dataclasses.replace(routed.event("bare", received(1)), headers=())
    broken = [dataclasses.replace(records[0], value=value, key=b"%d@0" % n) for n, value in enumerate((b"{}", b""))]
    routed.send(*broken, *records, bare)
    routed.wait_for(*broken, *records, bare, within=270)
    routed.assert_routed_as_declared()
    by_branch = Counter(record.topic.removeprefix(f"{routed.topic}.") for record in routed.found())
    assert by_branch == {"suspicious": 50, "cash": 10, "refunds": 10, "validated": 31, "dead-letter": 2}
    source = {record.key: record for record in routed.source()}
    for record in routed.found():
        if record.topic == routed.branches.dead_letter_topic:
            told, origin = headers(record), source[record.key]
            place = (told["dead_letter_topic"], told["dead_letter_partition"], told["dead_letter_offset"])
            assert place == (routed.topic, str(origin.partition), str(origin.offset))
            assert told["dead_letter_error"] == "NotFramedAvro"
            assert told["ce_time"] == "2024-05-01T12:00:00.000001Z"
        else:
            name, value = record.headers[-1]
            assert (name, record.topic) == (BRANCH_HEADER, f"{routed.topic}.{value.decode()}")
            assert record.headers[:-1] in (CE, ())


def test_a_schema_registered_after_its_first_record_is_learnt_and_nothing_is_lost(routed):
    note = f"note_{uuid.uuid4().hex}"  # a schema that this broker has never seen
    late = newer("refunded", amount="double", reason="string", **{note: "string"})
    records = [
        dataclasses.replace(
            routed.event("l1", received(1)),
            value=AvroEncoder(late).encode({"amount": amount, "reason": "late", note: "x"}),
        )
        for amount in (900.0, math.nextafter(900.0, 901.0))
    ]
    behind = routed.event("l1", received(1))
    routed.send(*records, behind)
    routed.router.wait_until(
        lambda: "unknown schema id, reading the registry" in routed.router.said, what="a look into the registry"
    )
    routed.writer.send([routed.writer.schema(late)])
    routed.wait_for(*records, behind)
    assert [routed.where(record) for record in (*records, behind)] == ["refunds", "suspicious", "validated"]
    routed.assert_routed_as_declared()


def test_a_record_of_two_megabytes_fits_its_branch(routed):
    """Spark's own limit is 1 MiB uncompressed; a topic may hold more, or a compressed record that was longer."""
    big = routed.event("big", received(1, note="x" * 1_900_000))
    settings = routed.settings.model_copy(
        update={"kafka": routed.settings.kafka.model_copy(update={"extra": {"message.max.bytes": "2000000"}})}
    )
    RecordProducer(settings).send([big])
    routed.sent += 1
    routed.wait_for(big)
    assert routed.where(big) == "validated"


def test_the_status_has_all_counts_and_the_marker_of_a_transaction_is_no_lag(routed):
    """In real-time mode the Spark checkpoint stands behind the last record, and a marker takes the offset after it."""

    def status():
        return branches_status(routed.settings, routed.branches, checkpoints=routed.router.checkpoints)

    routed.router.wait_until(lambda: status().lag == 0, what="lag 0")
    last = routed.event("transacted", received(1))
    routed.sent += 1
    producer = Producer({**routed.settings.kafka.librdkafka_producer(), "transactional.id": routed.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(last.topic, last.value, last.key, partition=last.partition, headers=list(last.headers))
    producer.commit_transaction(30)
    routed.wait_for(last)
    routed.wait_until_committed(last)
    committed = RouterCheckpoint.of(routed.branches, routed.router.checkpoints).committed()
    ends = end_offsets(routed.settings, [routed.topic])[routed.topic]
    assert sum(ends.values()) == sum(committed.values()) + 1
    before = {**committed, last.partition: committed[last.partition] - 1}
    assert offsets_behind(routed.settings, routed.topic, before) == 2  # the record counts, and its marker with it
    assert status().lag == 0
    counts = status().counts
    assert set(counts) == {"suspicious", "cash", "refunds", "validated", "dead-letter"}
    assert sum(counts.values()) == len(routed.found()) >= routed.sent


def test_a_router_killed_while_routing_loses_nothing_and_says_its_counts_at_the_end(routed):
    before = [routed.event(f"k{number % 50}", received(number)) for number in range(2_000)]
    routed.send(*before[:1_000])
    routed.router.wait_until(lambda: len(routed.keys()) > routed.sent - 999, what="half of the records")
    routed.send(*before[1_000:])
    routed.router.kill()
    routed.start("--batch-seconds", "5")
    after = routed.event("after", received(1))  # routed by the second router: the first may have routed all the others
    routed.send(after)
    routed.wait_for(*before, after, within=270)
    routed.assert_routed_as_declared()
    said = routed.router.result()
    assert said["mode"] == "real-time"
    assert sum(said["counts"].values()) == len(routed.found())


def delete_topic(settings, name):
    admin = AdminClient(settings.kafka.librdkafka())
    admin.delete_topics([name])[name].result(30)


@pytest.mark.faults
def test_a_topic_that_goes_away_ends_the_router_with_its_name_and_costs_no_record_that_is_there(routed):
    """A branch topic in micro-batches, which go on from the Spark checkpoint of real-time mode; then the source."""
    first, second = routed.event("g1", received(1)), routed.event("g2", received(2))
    routed.send(first)
    routed.start("--mode", "micro-batch")
    routed.wait_for(first)
    gone = routed.branches.topics["validated"]
    delete_topic(routed.settings, gone)
    routed.send(second)
    assert routed.router.wait(120) == 1
    assert f"topic {gone!r} does not exist" in routed.router.said
    routed.start("--batch-seconds", "5")
    routed.wait_for(second)
    assert routed.where(second) == "validated"
    delete_topic(routed.settings, routed.topic)
    assert routed.router.wait(120) == 1
    assert f"topic {routed.topic!r} does not exist" in routed.router.said
