"""Topics archived with exact offsets, and views rebuilt from archive and tail, on real Kafka and PostgreSQL."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore.kafka.admin import compare_topics, end_offsets, ensure_topics, limit_retention
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import TopicRecord, event_topic
from projections import Archiver, rebuild, release_topic, rollback, verify
from projections.errors import OffsetsLost, ProjectionError
from projections.logs.offsets import OffsetRange
from projections.spark import exchange
from projections.spark.archive import archiver as archiving
from projections.spark.archive.delta_archive import DeltaArchive, TopicTable, archived_log
from projections.spark.reading.kafka_source import KafkaLog
from tests.errors import raises
from tests.integration.log_writer import LogWriter
from tests.integration.ticket_history import TicketHistory, assert_views_as_expected
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group
from tests.waiting import wait_until

PARTITIONS = 3


def expire(settings, places):
    """What retention does once segments are old enough."""
    admin = AdminClient(settings.kafka.librdkafka())
    for answer in admin.delete_records(places).values():
        answer.result(10)


class Events:
    """An event topic of its own, and what is sent to it."""

    def __init__(self, settings):
        self.settings, self.name = settings, f"parcel.{uuid.uuid4().hex[:8]}"
        self.spec = event_topic(self.name, partitions=PARTITIONS)
        self._producer, self._sent = RecordProducer(settings), 0
        ensure_topics(settings, [self.spec])

    def send(self, count):
        self._producer.send([self._record(number) for number in range(self._sent, self._sent + count)])
        self._sent += count

    def send_in_transactions(self, count):
        """Once aborted, once committed: both leave markers, and one leaves records that nobody may see."""
        producer = Producer(self.settings.kafka.librdkafka() | {"transactional.id": self.name})
        producer.init_transactions(10)
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for number in range(count):
                producer.produce(self.name, b"in a transaction", f"t-{number}".encode(), partition=number % PARTITIONS)
            producer.flush(10)
            end(10)

    def records(self):
        return {(r.partition, r.offset): r for r in read_range(self.settings, self.name)}

    def ends(self):
        return end_offsets(self.settings, [self.name])[self.name]

    def expire(self, offsets):
        expire(self.settings, [TopicPartition(self.name, partition, offset) for partition, offset in offsets.items()])

    def make_anew(self):
        admin = AdminClient(self.settings.kafka.librdkafka())
        for answer in admin.delete_topics([self.name]).values():
            answer.result(10)
        wait_until(lambda: self.name not in admin.list_topics(timeout=10).topics, what=lambda: "the topic goes")
        wait_until(lambda: ensure_topics(self.settings, [self.spec]), what=lambda: "the topic comes again")

    def _record(self, number):
        headers = (("ce_time", f"2026-01-01T00:00:{number % 60:02}Z".encode()), ("none", None), ("ce_time", b"second"))
        value = None if number % 50 == 49 else f"event {number}".encode()
        return OutgoingRecord(
            topic=self.name, key=f"parcel-{number}@0".encode(), value=value, headers=headers if number % 3 else (),
            partition=number % PARTITIONS,
        )  # fmt: skip


@pytest.fixture
def events(settings):
    return Events(settings)


@pytest.fixture
def archive(spark, tmp_path):
    return DeltaArchive.open(spark, tmp_path / "archive")


@pytest.fixture
def archiver(settings, archive):
    return Archiver(KafkaLog(settings), archive)


def archived_records(archive, topic):
    """The archive's content as records of the topic, and how many rows it has."""
    found = archive.table(topic).rows(archive.spark).toArrow().to_pylist()
    records = [
        TopicRecord(
            topic=row["topic"], partition=row["partition"], offset=row["offset"], key=row["key"], value=row["value"],
            headers=tuple((h["key"], h["value"]) for h in row["headers"] or ()),
            timestamp=round(row["timestamp"].timestamp() * 1000),
        )
        for row in found
    ]  # fmt: skip
    return {(r.partition, r.offset): r for r in records}, len(records)


def assert_archived_exactly(archive, events):
    found, rows = archived_records(archive, events.name)
    assert found == events.records()
    assert rows == len(found)
    assert archive.extents([events.name])[events.name].end == events.ends()


def test_an_archive_holds_each_committed_record_once_and_ends_where_the_topic_does(archiver, archive, events):
    events.send(300)
    events.send_in_transactions(30)
    archiver.catch_up([events.name])
    assert_archived_exactly(archive, events)
    events.send(40)
    events.send_in_transactions(3)
    archiver.catch_up([events.name], on_append=lambda done: events.send(5))  # a topic that never rests
    assert archiver.append(events.name).offsets == 5
    assert archiver.append(events.name) is None
    assert_archived_exactly(archive, events)


def test_an_append_that_ends_before_its_commit_leaves_nothing_and_is_made_again(archiver, archive, events, monkeypatch):
    events.send(90)
    archiver.catch_up([events.name])
    before = archive.extents([events.name])
    events.send(60)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TopicTable, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            archiver.append(events.name)
    assert archive.extents([events.name]) == before
    dataclasses.replace(archiver, max_offsets=40).catch_up([events.name])
    assert_archived_exactly(archive, events)


def test_of_two_archivers_at_once_the_one_that_commits_last_keeps_nothing(archiver, archive, events, monkeypatch):
    events.send(30)
    archiver.catch_up([events.name])
    events.send(30)
    ask = archiving.require_retained
    asked = []

    def other_one_commits_first(*arguments):
        ask(*arguments)
        asked.append(True)
        if len(asked) == 2:  # the first is before the records are read, the second before the commit
            archiver.append(events.name)

    monkeypatch.setattr(archiving, "require_retained", other_one_commits_first)
    with raises(ProjectionError, code="archive-moved", match="it committed first"):
        archiver.append(events.name)
    assert_archived_exactly(archive, events)


@pytest.mark.faults
def test_an_archiver_that_saves_its_offsets_before_its_rows_is_caught(archiver, archive, events, settings, monkeypatch):
    """The planted fault: what a separate checkpoint does, when the process is killed between the two."""
    events.send(30)
    archiver.catch_up([events.name])
    events.send(60)

    def offsets_first(table, rows, start, end, *, before_commit):
        transaction = table._log.begin()
        table._move(transaction, start, end)
        transaction.commit(transaction.writeFiles(rows.limit(0)._jdf), table._operation(transaction, end))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TopicTable, "append", offsets_first)
        with pytest.raises(KeyboardInterrupt):
            archiver.append(events.name)
    assert archiver.append(events.name) is None
    with raises(ProjectionError, code="archive-differs", match="60 records of the topic are not in its archive"):
        release_topic(settings, archiver.log, archive, events.name, retention=timedelta(days=30))


def test_what_went_before_it_was_archived_is_told_and_never_passed_over(archiver, archive, events, settings):
    events.send(60)
    archiver.catch_up([events.name])
    limit_retention(settings, events.name, retention_ms=86_400_000)
    events.send(30)
    events.expire({0: 25})
    with pytest.raises(OffsetsLost, match="offsets 20 to 24 went before they were archived"):
        archiver.append(events.name)
    left = DeltaArchive.open(archive.spark, archive.folder.uri + "-of-what-is-left")
    with pytest.raises(OffsetsLost, match="offsets 0 to 24"):
        Archiver(archiver.log, left).append(events.name)
    Archiver(archiver.log, left, incomplete=True).catch_up([events.name])
    assert_archived_exactly(left, events)
    with raises(ProjectionError, code="archive-differs", match="does not reach back to the topic's first record"):
        release_topic(settings, archiver.log, left, events.name, retention=timedelta(days=30))


def test_a_topic_of_the_same_name_that_was_made_anew_is_another_one(archiver, archive, events):
    events.send(30)
    archiver.catch_up([events.name])
    events.make_anew()
    events.send(60)
    with pytest.raises(OffsetsLost, match="another topic of this name"):
        archiver.append(events.name)
    log = archived_log(archive.spark, archiver.log, archive.folder.uri)
    with pytest.raises(OffsetsLost, match="another topic of this name"), log.open() as opened:
        opened.beginning_offsets([events.name])


@pytest.mark.faults
def test_small_files_are_put_together_and_files_outside_a_range_are_not_opened(archiver, archive, events, monkeypatch):
    small = dataclasses.replace(archiver, max_offsets=60)
    events.send(180)
    small.catch_up([events.name])
    table, first = archive.table(events.name), OffsetRange({events.name: {1: 22}}, {events.name: {1: 28}})
    rows = archive.scan(archive.spark, first, headed=True)
    assert table.files()[0] == 3 * PARTITIONS
    assert len(rows.inputFiles()) == 1
    assert sorted(row.offset for row in rows.collect()) == list(range(22, 28))
    monkeypatch.setattr(archiving, "MOST_SMALL_FILES", 9)
    events.send(3)
    small.catch_up([events.name])
    assert table.files()[0] == PARTITIONS
    assert_archived_exactly(archive, events)


def test_a_released_topic_keeps_its_compaction_and_is_still_the_one_that_is_wanted(archiver, archive, events, settings):
    events.send(60)
    archiver.catch_up([events.name])
    events.send_in_transactions(6)
    release = partial(release_topic, settings, archiver.log, archive, events.name, retention=timedelta(hours=36))
    with raises(ProjectionError, code="archive-differs", match=r"\d+ offsets of the topic are not archived yet"):
        release(patience=timedelta(seconds=0))
    archiver.catch_up([events.name])
    verdict, given = release()
    assert (verdict.equal, verdict.whole, verdict.archived, verdict.compared) == (True, True, 66, 66)
    assert given == {"cleanup.policy": "compact,delete", "retention.ms": "129600000"}
    assert archiver.log.cleanup_policies([events.name]) == {events.name: "compact,delete"}
    assert not compare_topics(settings, [events.spec]).mismatches


def test_a_folder_that_others_may_enter_and_a_session_without_delta_are_refused(archive, tmp_path, monkeypatch):
    assert (tmp_path / "archive").stat().st_mode & 0o777 == 0o700
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    with raises(ProjectionError, code="archive-unusable", match="can be entered by others"):
        DeltaArchive.open(archive.spark, open_to_all)

    class WithoutDelta:
        class conf:
            get = staticmethod(lambda name, default: default)

    with raises(ProjectionError, code="archive-unusable", match="has no Delta Lake"):
        DeltaArchive.open(WithoutDelta(), tmp_path / "archive")


def expire_archived(settings, archive, topics):
    """Delete from the topics whatever is archived of them."""
    ends = {topic: extent.end for topic, extent in archive.extents(topics).items()}
    expire(settings, [TopicPartition(t, p, end) for t, parts in ends.items() for p, end in parts.items()])


@pytest.mark.faults
def test_views_are_rebuilt_from_archive_and_tail_once_the_topics_have_lost_what_is_archived(
    environment, spark, archiver, archive, monkeypatch
):
    env = environment()
    settings = env.log.settings
    writer = LogWriter(settings, Ticket, CUSTOMERS, REGIONS)
    group, history = ticket_group(writer), TicketHistory(writer, 11)
    writer.send([record for _ in range(120) for record in history.step()])
    archiver.catch_up(group.topics)
    for topic in group.topics:
        limit_retention(settings, topic, retention_ms=86_400_000)
    expire_archived(settings, archive, group.topics)
    writer.send([record for _ in range(20) for record in history.step()])
    with pytest.raises(OffsetsLost, match="no longer begins at its beginning"):
        rebuild(env, group)
    archived = dataclasses.replace(env, log=archived_log(spark, env.log, archive.folder.uri))
    with monkeypatch.context() as patched:
        patched.setattr(exchange, "DRIVER_ROWS", 3)  # as a log too large for one process is read
        report = rebuild(archived, group)
    ends = end_offsets(settings, group.topics)
    assert report.records == sum(end for parts in ends.values() for end in parts.values())
    assert_views_as_expected(env, history)
    assert all(verdict.equal and verdict.rows for verdict in verify(archived, group).values())

    writer.send([record for _ in range(20) for record in history.step()])
    rebuild(archived, dataclasses.replace(group, version=2))
    archiver.catch_up(group.topics)
    expire_archived(settings, archive, group.topics)
    with pytest.raises(OffsetsLost, match="are no longer in the topic"):
        rollback(env, group)
    assert rollback(archived, group).generation == report.generation
    assert_views_as_expected(env, history)
