"""What is read from an archive and what from the topic behind it, and how old it is; without servers."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from cdc.changes.change_records import commit_time
from cdc.errors import UndecodableChange
from eventstore.errors import DeclarationError, InvalidIdentifier
from factfold.cli.options import parse_duration
from factfold.cli.views import projections as command_line
from projections.declaring.group import ERASURES
from projections.errors import OffsetsLost, ProjectionError
from projections.lifecycle.metrics import applied_commits
from projections.logs.layers import ArchivedLog, Extent, divided, require_same
from projections.logs.offsets import OffsetRange
from projections.logs.port import arrow_record_schema
from projections.spark.archive.delta_archive import ArchiveFolder
from projections.spark.reading.records import from_the_beginning
from projections.testing.memory_log import MemoryLog
from tests.conformance.ticket_batches import GROUP
from tests.errors import raises

TOPIC = "parcel"
ARCHIVED = Extent("id", {0: 0, 1: 0}, {0: 100, 1: 40})


def test_what_waits_for_an_archiver_is_behind_its_end_and_all_of_partitions_that_it_does_not_know():
    assert ARCHIVED.waiting({0: 100, 1: 40}) == 0
    assert ARCHIVED.waiting({0: 103, 1: 40, 2: 7}) == 10


class Log:
    """A topic that keeps what is from ``kept`` on; records are their offsets."""

    def __init__(self, kept, ends, *, topic_id="id"):
        self.kept, self.ends, self.topic_id = kept, ends, topic_id
        self.fetched = []

    @contextmanager
    def open(self):
        yield self

    def topic_ids(self, topics):
        return dict.fromkeys(topics, self.topic_id)

    def beginning_offsets(self, topics):
        return {topic: self.kept for topic in topics}

    def end_offsets(self, topics):
        return {topic: self.ends for topic in topics}

    def fetch(self, offsets, *, headed=False):
        wanted = offsets.not_empty()
        if any(o < self.kept[p] for parts in wanted.start.values() for p, o in parts.items()):
            raise OffsetsLost("gone", remedy="none")
        self.fetched.append(wanted)
        return records(wanted)


class ArchiveOf:
    """An archive of one extent; it counts how often it is asked."""

    def __init__(self, extent):
        self.extent, self.scanned = extent, []

    def extents(self, topics):
        return {TOPIC: self.extent} if self.extent and TOPIC in topics else {}

    def scan(self, spark, offsets, *, headed=False):
        self.scanned.append(offsets.not_empty())
        return Frame(records(offsets))


class Frame:
    def __init__(self, found):
        self.found = found

    def toArrow(self):
        return self.found


def records(offsets):
    places = [
        (t, p, o) for t, ends in offsets.end.items() for p, end in ends.items() for o in range(offsets.start[t][p], end)
    ]
    columns = dict(zip(("topic", "partition", "offset"), zip(*places, strict=True), strict=True)) if places else {}
    schema = arrow_record_schema(headed=False)
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * len(places)), f.type) for f in schema})


def between(start, end):
    return OffsetRange({TOPIC: start}, {TOPIC: end})


def opened(log, extent=ARCHIVED):
    archive = ArchiveOf(extent)
    return ArchivedLog(log, archive, None), archive


@pytest.mark.parametrize(
    ("start", "end", "cut"),
    [
        ({0: 0, 1: 0}, {0: 120, 1: 50}, {0: 100, 1: 40}),
        ({0: 0, 1: 0}, {0: 90, 1: 30}, {0: 90, 1: 30}),
        ({0: 100, 1: 41}, {0: 120, 1: 50}, {0: 100, 1: 41}),
        ({0: 5, 2: 0}, {0: 120, 2: 7}, {0: 100, 2: 0}),
    ],
)
def test_what_is_archived_is_read_from_the_archive_and_the_rest_from_the_topic(start, end, cut):
    archived, tail = divided(between(start, end), {TOPIC: ARCHIVED})
    assert (archived.start, archived.end) == ({TOPIC: start}, {TOPIC: cut})
    assert (tail.start, tail.end) == ({TOPIC: cut}, {TOPIC: end})


def test_a_range_from_before_the_archives_beginning_is_the_topics():
    offsets = between({0: 5}, {0: 30})
    archived, tail = divided(offsets, {TOPIC: Extent("id", {0: 10}, {0: 100})})
    assert (archived.records, tail) == (0, offsets)


def test_a_topic_begins_where_its_archive_does_as_long_as_nothing_is_missing_between_the_two():
    log, _ = opened(Log({0: 100, 1: 12}, {0: 130, 1: 50}))
    with log.open() as reader:
        assert reader.beginning_offsets([TOPIC]) == {TOPIC: {0: 0, 1: 0}}
        from_the_beginning(reader.beginning_offsets([TOPIC]), reader.end_offsets([TOPIC]))


@pytest.mark.parametrize("extent", [ARCHIVED, None, Extent("id", {1: 0}, {1: 40})])
def test_records_between_archive_and_topic_that_neither_has_are_lost(extent):
    log, _ = opened(Log({0: 101, 1: 12}, {0: 130, 1: 50}), extent)
    with log.open() as reader, pytest.raises(OffsetsLost, match="101 offsets have been removed"):
        from_the_beginning(reader.beginning_offsets([TOPIC]), reader.end_offsets([TOPIC]))


@pytest.mark.parametrize(
    ("topic_id", "ends", "why"),
    [("other", {0: 130, 1: 50}, "another topic of this name"), ("id", {0: 130, 1: 39}, "ends before its archive")],
)
def test_an_archive_of_another_topic_is_never_read(topic_id, ends, why):
    log, _ = opened(Log({0: 0, 1: 0}, ends, topic_id=topic_id))
    with log.open() as reader, pytest.raises(OffsetsLost, match=why):
        reader.beginning_offsets([TOPIC])
    with pytest.raises(OffsetsLost, match=why):
        require_same(TOPIC, ARCHIVED, topic_id=topic_id, ends=ends)


def test_a_small_range_is_the_topics_as_long_as_it_has_it_and_the_archive_is_not_asked():
    inner = Log({0: 0, 1: 0}, {0: 130, 1: 50})
    log, archive = opened(inner)
    with log.open() as reader:
        found = reader.fetch(between({0: 90, 1: 30}, {0: 130, 1: 50}))
    assert found["offset"].to_pylist() == [*range(90, 130), *range(30, 50)]
    assert archive.scanned == []


def test_a_small_range_whose_first_records_have_gone_is_read_from_the_archive_up_to_its_end():
    inner = Log({0: 100, 1: 12}, {0: 130, 1: 50})
    log, archive = opened(inner)
    with log.open() as reader:
        found = reader.fetch(between({0: 90, 1: 30}, {0: 130, 1: 50}))
    assert sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)) == [
        *((0, offset) for offset in range(90, 130)),
        *((1, offset) for offset in range(30, 50)),
    ]
    assert archive.scanned == [between({0: 90, 1: 30}, {0: 100, 1: 40})]
    assert inner.fetched == [between({0: 100, 1: 40}, {0: 130, 1: 50})]


def test_a_small_range_whose_deletions_may_be_gone_from_the_topic_is_read_from_the_archive_that_reaches_beyond_them():
    inner = Log({0: 0, 1: 0}, {0: 130, 1: 50})
    inner.deletions_complete_from = lambda topics: {TOPIC: {0: 95, 1: 0}}
    log, archive = opened(inner)
    with log.open() as reader:
        assert reader.deletions_complete_from([TOPIC]) == {TOPIC: {0: 0, 1: 0}}
        for start in (90, 95):
            assert reader.fetch(between({0: start}, {0: 130}))["offset"].to_pylist() == [*range(start, 130)]
    assert archive.scanned == [between({0: 90}, {0: 100})]
    assert inner.fetched == [between({0: 100}, {0: 130}), between({0: 95}, {0: 130})]


@pytest.mark.parametrize("extent", [ARCHIVED, None])
def test_an_archive_that_ends_before_deletions_are_gone_helps_nobody(extent):
    inner = Log({0: 0, 1: 0}, {0: 130, 1: 50})
    inner.deletions_complete_from = lambda topics: {TOPIC: {0: 101, 1: 50}}
    log, _ = opened(inner, extent)
    with log.open() as reader:
        assert reader.deletions_complete_from([TOPIC]) == {TOPIC: {0: 101, 1: 50}}


def test_a_small_range_that_neither_has_is_lost():
    log, _ = opened(Log({0: 110, 1: 12}, {0: 130, 1: 50}))
    for start in ({0: 90}, {0: 105}):
        with log.open() as reader, pytest.raises(OffsetsLost):
            reader.fetch(between(start, {0: 130}))


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("s3a://lake/archive/", "s3a://lake/archive"),
        ("/var/lib/a b", "file:/var/lib/a b"),
        ("file:/var/lib/a", "file:/var/lib/a"),
    ],
)
def test_an_archive_lies_on_any_file_system_that_hadoop_knows(path, uri):
    assert ArchiveFolder.of(path).uri == uri


@pytest.mark.parametrize("topic", ["..", "a/b", "", "a`b", "x" * 300])
def test_what_is_no_name_of_a_topic_becomes_no_folder(topic):
    with pytest.raises(InvalidIdentifier):
        ArchiveFolder("file:/a").of_topic(topic)


def test_a_folder_that_cannot_be_made_is_told_with_its_place(tmp_path):
    (tmp_path / "file").touch()
    with raises(ProjectionError, code="archive-unusable", match="cannot be made") as caught:
        ArchiveFolder.of(tmp_path / "file" / "archive").make()
    assert caught.value.place == str(tmp_path / "file" / "archive")


@pytest.mark.parametrize(
    ("text", "time"), [("90s", timedelta(seconds=90)), ("36h", timedelta(hours=36)), ("30d", timedelta(days=30))]
)
def test_a_retention_is_said_with_its_unit(text, time):
    assert parse_duration(text) == time


@pytest.mark.parametrize("text", ["", "30", "0d", "-1d", "1w", "1.5h"])
def test_what_is_no_retention_is_refused(text):
    with pytest.raises(DeclarationError, match="is no time"):
        parse_duration(text)


def test_an_archive_of_topics_is_refused_where_there_are_none(tmp_path):
    place = command_line.Place(f"sqlite:///{tmp_path}/shop.db", "1g", archive=str(tmp_path))
    with pytest.raises(DeclarationError, match="of Kafka's topics"), command_line.opened_environment(GROUP, place):
        pass


# ---- how fresh views are


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def change(moment):
    return {"op": "c", "after": {"id": 1}, "source": {"ts_ms": int(moment.timestamp() * 1000)}}


def encoded(body):
    return json.dumps(body).encode()


def commits(log, progress):
    with log.open() as opened:
        return applied_commits(opened, progress)


@pytest.mark.parametrize("body", [change(NOON), {"schema": {"type": "struct", "fields": []}, "payload": change(NOON)}])
def test_the_commit_of_a_change_is_that_of_its_transaction(body):
    assert commit_time(encoded(body), "t[0]@0") == NOON


@pytest.mark.parametrize("source", [None, {}, {"ts_ms": None}, {"ts_ms": "noon"}])
def test_a_change_that_does_not_say_has_no_commit(source):
    assert commit_time(encoded({"op": "c", "source": source}), "t[0]@0") is None


def test_a_value_that_is_no_change_is_refused():
    with pytest.raises(UndecodableChange):
        commit_time(b"\xff", "t[0]@0")


def test_the_newest_applied_record_counts_and_those_that_wait_do_not():
    log = MemoryLog()
    for minutes in range(4):
        log.append("items", b"1", encoded(change(NOON + timedelta(minutes=minutes))))
    assert commits(log, {"items": {0: 3}}) == {"items": NOON + timedelta(minutes=2)}


def test_tombstones_and_records_that_were_set_aside_are_passed_over():
    log = MemoryLog()
    log.append("items", b"1", encoded(change(NOON)))
    log.append("items", b"1", None)
    log.append("items", b"2", b"no change at all")
    assert commits(log, {"items": {0: 3}}) == {"items": NOON}


def test_a_topic_that_does_not_say_is_left_out():
    log = MemoryLog()
    log.append("items", b"1", None)
    assert commits(log, {"items": {0: 1}, "others": {0: 0}, ERASURES: {0: 7}}) == {}


def test_a_time_behind_many_tombstones_is_found_and_one_behind_more_is_not():
    log = MemoryLog()
    log.append("items", b"1", encoded(change(NOON)))
    for _ in range(31):
        log.append("items", b"1", None)
    assert commits(log, {"items": {0: 32}}) == {"items": NOON}
    log.append("items", b"1", None)
    assert commits(log, {"items": {0: 33}}) == {}
