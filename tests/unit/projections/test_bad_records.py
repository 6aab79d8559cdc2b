"""Records that cannot be applied: waited for, read around, and passed over by policy."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pyarrow as pa
import pytest
import structlog.testing

from projections import BatchReport
from projections.errors import ProjectionError, RecordNotUnpacked, UndecodableRecord, UnknownSchemaId, not_unpacked
from projections.logs import ranges
from projections.logs.offsets import OffsetRange
from projections.logs.port import arrow_record_schema
from projections.logs.ranges import around, not_unpacked_in, still_not_unpacked
from projections.logs.set_aside import SetAside
from projections.spark.live.applying import BatchApplier
from projections.spark.reading.records import left_out, read_records
from tests.errors import raises
from tests.rows import each_row

OFFSETS = OffsetRange({"t": {0: 0}}, {"t": {0: 5}})


def unknown(schema_id):
    error = UnknownSchemaId("unknown", remedy="publish it")
    error.schema_id = schema_id
    return error


class World:
    """A registry that learns a schema at its n-th reading, and records written by one schema."""

    def __init__(self, *, learns_at=None, end=5):
        self.readings, self.learns_at, self.end = 0, learns_at, end

    def schemas(self, _):
        self.readings += 1
        return {7: "schema"} if self.learns_at is not None and self.readings >= self.learns_at else {}

    def end_offsets(self, _):
        return {"t": {0: self.end}}


@dataclasses.dataclass(frozen=True)
class Batches:
    """Applies a range once the schema of its records is known."""

    log: World
    written_by: int = 7
    registry: dict = dataclasses.field(default_factory=dict)
    aside: object = None
    group = SimpleNamespace(name="g", bad_records="fail", avro_changelogs=(), inputs=("t",))
    environment = property(lambda self: SimpleNamespace(log=self.log))
    reduction = property(lambda self: SimpleNamespace(registry=self.registry))

    def with_schemas(self, registry):
        return dataclasses.replace(self, registry=registry)

    def without(self, aside):
        return dataclasses.replace(self, aside=aside)

    def apply(self, offsets):
        if self.written_by not in self.registry:
            raise unknown(self.written_by)
        return BatchReport(offsets.records)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("projections.spark.live.applying._LOOK_SECONDS", 0.0)


def test_a_schema_that_comes_late_is_waited_for_and_the_same_range_applied():
    applier = BatchApplier(Batches(world := World(learns_at=3)), None, patience=60.0)
    assert applier.apply(OFFSETS).records == 5
    assert world.readings == 3


def test_a_schema_that_does_not_come_stops_the_batch_and_is_not_waited_for_again():
    applier = BatchApplier(Batches(world := World()), None, patience=0.05)
    with pytest.raises(UnknownSchemaId):
        applier.apply(OFFSETS)
    before = world.readings
    with pytest.raises(UnknownSchemaId):
        applier.apply(OFFSETS)
    assert world.readings == before + 1


def test_one_that_was_given_up_is_taken_once_it_is_there():
    applier = BatchApplier(Batches(world := World()), None, patience=0.0)
    with pytest.raises(UnknownSchemaId):
        applier.apply(OFFSETS)
    world.learns_at = 0
    assert applier.apply(OFFSETS).records == 5


def test_a_known_schema_of_another_table_is_not_waited_for():
    applier = BatchApplier(Batches(World(learns_at=0), written_by=8), None, patience=0.0)
    with pytest.raises(UnknownSchemaId):
        applier.apply(OFFSETS)


def test_what_stays_bad_is_raised_as_it_is():
    class Broken(Batches):
        def apply(self, offsets):
            raise UndecodableRecord("bad", remedy="correct it")

    with pytest.raises(UndecodableRecord, match="bad"):
        BatchApplier(Broken(World()), None, patience=0.0).apply(OFFSETS)


# ---- batches of records that do not unpack


WHOLE = OffsetRange({"t": {0: 0, 1: 0}, "u": {0: 5}}, {"t": {0: 20, 1: 3}, "u": {0: 9}})


class PackedLog:
    """A record at every offset, and batches that no client unpacks: topic, partition, first offset and the one after.

    ``says_where`` is False for a client that names the topic alone, as Spark's may.
    """

    def __init__(self, *batches, says_where=True):
        self.batches, self.says_where, self.fetched = batches, says_where, 0

    def fetch(self, offsets, *, headed=False):
        rows = []
        for topic, parts in offsets.end.items():
            for partition, end in parts.items():
                start = offsets.start[topic][partition]
                for t, p, first, after in self.batches:
                    if (t, p) == (topic, partition) and max(start, first) < min(after, end):
                        raise not_unpacked("too large", topic=t, partition=p, offset=first, end=after)
                rows += [(topic, partition, offset, b"k", b"v") for offset in range(start, end)]
                self.fetched += end - start
        columns = zip(*rows, strict=True) if rows else [[]] * 5
        return pa.table([list(column) for column in columns], schema=arrow_record_schema(headed=headed))

    def end_offsets(self, topics):
        return WHOLE.end


def places(aside):
    return [(fault.topic, fault.partition, fault.offset) for fault in aside]


def read(log, offsets, aside):
    found = read_records(None, log, offsets, aside=aside)
    rows = left_out(found, aside).values()
    return [tuple(row.values())[:3] for table in rows for row in table.to_pylist()]


def expected(offsets, *batches):
    whole = [(t, p, o) for t, parts in offsets.end.items() for p, e in parts.items()
             for o in range(offsets.start[t][p], e)]  # fmt: skip
    inside = {(t, p, o) for t, p, first, after in batches for o in range(first, after)}
    return [place for place in whole if place not in inside], [place for place in whole if place in inside]


BATCHES = {
    "none": [],
    "one at the beginning": [("t", 0, 0, 4)],
    "one at the end": [("t", 0, 15, 20)],
    "one of a single record": [("t", 0, 7, 8)],
    "one that begins before the range": [("u", 0, 2, 7)],
    "one that ends behind the range": [("u", 0, 7, 30)],
    "two with a record between": [("t", 0, 3, 5), ("t", 0, 6, 9)],
    "two that follow each other": [("t", 0, 3, 5), ("t", 0, 5, 9)],
    "many": [("t", 0, n, n + 1) for n in range(1, 20, 2)],
    "in several partitions and topics": [("t", 0, 3, 5), ("t", 1, 0, 2), ("u", 0, 8, 9)],
    "a whole partition": [("t", 1, 0, 3)],
    "a whole topic": [("u", 0, 0, 50)],
    "all": [("t", 0, 0, 20), ("t", 1, 0, 3), ("u", 0, 0, 9)],
}


@each_row("batches", BATCHES.values(), ids=list(BATCHES))
def test_exactly_the_records_of_such_batches_are_found_and_all_others_are_read(batches):
    log = PackedLog(*batches)
    found = not_unpacked_in(log, WHOLE)
    good, bad = expected(WHOLE, *batches)
    assert places(found) == bad
    assert sorted(read(log, WHOLE, found)) == good


def test_a_log_is_looked_through_once_whatever_is_found(monkeypatch):
    monkeypatch.setattr(ranges, "_STEP", 4)
    log = PackedLog(*BATCHES["many"])
    not_unpacked_in(log, WHOLE)
    assert log.fetched <= WHOLE.records


def test_a_log_without_such_batches_is_read_in_one_piece():
    assert around(WHOLE, SetAside.nothing()) == [WHOLE]


def test_a_batch_of_more_records_than_are_noted_is_no_exception():
    with raises(ProjectionError, code="too-many-bad-records"):
        not_unpacked_in(PackedLog(("t", 0, 0, 2_000_001)), OffsetRange({"t": {0: 0}}, {"t": {0: 3_000_000}}))


def test_each_batch_is_told_in_the_log_with_topic_partition_and_offsets():
    with structlog.testing.capture_logs() as lines:
        not_unpacked_in(PackedLog(("t", 0, 3, 5), ("u", 0, 7, 8)), WHOLE)
    assert [(line["topic"], line["partition"], line["offsets"], line["log_level"]) for line in lines] == [
        ("t", 0, "3 to 4", "warning"),
        ("u", 0, "7", "warning"),
    ]


def test_what_is_set_aside_says_the_batch_and_is_of_its_own_type():
    first, _ = not_unpacked_in(PackedLog(("t", 0, 3, 5)), WHOLE)
    assert isinstance(first.error, RecordNotUnpacked)
    assert first.error.place == "topic t, partition 0, offset 3"
    assert "offsets 3 to 4" in first.error.message
    assert "receive.message.max.bytes" in first.error.remedy


def test_what_another_generation_could_not_unpack_is_set_aside_only_while_that_holds():
    noted = not_unpacked_in(PackedLog(("t", 0, 3, 5), ("t", 1, 0, 2), ("u", 0, 8, 9)), WHOLE)
    within = WHOLE.without("u")
    assert places(still_not_unpacked(PackedLog(("t", 0, 3, 5)), noted, within)) == [("t", 0, 3), ("t", 0, 4)]


@dataclasses.dataclass(frozen=True)
class PackedBatches:
    """Applies a range by noting what is read of it."""

    log: PackedLog
    bad_records: str
    applied: list = dataclasses.field(default_factory=list)
    aside: SetAside = dataclasses.field(default_factory=SetAside.nothing)
    environment = SimpleNamespace(small=None, log=None)
    reduction = SimpleNamespace(registry={})

    @property
    def group(self):
        return SimpleNamespace(
            name="g", bad_records=self.bad_records, avro_changelogs=(), inputs=("t", "u"), tables={}, headed_topics=()
        )

    def without(self, aside):
        return dataclasses.replace(self, aside=aside)

    def apply(self, offsets):
        try:
            found = read(self.log, offsets, self.aside)
        except RecordNotUnpacked as error:
            if self.log.says_where:
                raise
            raise not_unpacked("too large", topic=error.topic, partition=0, offset=None) from None
        self.applied.append((found, self.aside))
        return BatchReport(offsets.records)


class Letters:
    def __init__(self):
        self.sent = []

    def send(self, aside, *, attempts):
        self.sent += places(aside)


@each_row("says_where", [True, False], ids=["the driver's client", "Spark's client"])
@each_row("policy", ["skip", "dead-letter"])
@each_row("batches", BATCHES.values(), ids=list(BATCHES))
def test_a_run_passes_over_such_batches_by_policy_in_one_commit_and_applies_all_else(batches, policy, says_where):
    given = PackedBatches(PackedLog(*batches, says_where=says_where), policy)
    letters = Letters() if policy == "dead-letter" else None
    report = BatchApplier(given, letters, patience=0.0).apply(WHOLE)
    good, bad = expected(WHOLE, *batches)
    ((found, aside),) = given.applied
    assert (sorted(found), places(aside)) == (good, bad)
    assert report.set_aside == ({"not_unpacked": len(bad)} if bad else {})
    assert letters is None or letters.sent == bad


def test_a_run_that_tolerates_none_stops_with_topic_partition_and_offsets():
    with pytest.raises(RecordNotUnpacked) as refused:
        BatchApplier(PackedBatches(PackedLog(("t", 0, 3, 5)), "fail"), None, patience=0.0).apply(WHOLE)
    assert refused.value.place == "topic t, partition 0, offsets 3 to 4"
    assert "bad_records" in refused.value.remedy


def test_what_is_known_of_another_generation_is_passed_over_and_sent_although_it_can_be_read_here():
    known = not_unpacked_in(PackedLog(("t", 0, 3, 5)), WHOLE)
    given, letters = PackedBatches(PackedLog(), "dead-letter"), Letters()
    applier = BatchApplier(given, letters, patience=0.0, known=known.within_range)
    applier.apply(OffsetRange({"t": {0: 0}}, {"t": {0: 4}}))
    applier.apply(OffsetRange({"t": {0: 4}}, {"t": {0: 8}}))
    assert [places(aside) for _, aside in given.applied] == [[("t", 0, 3)], [("t", 0, 4)]]
    assert letters.sent == [("t", 0, 3), ("t", 0, 4)]


def test_a_batch_that_another_client_alone_cannot_unpack_stops_the_run():
    class Refused(PackedBatches):
        def apply(self, offsets):
            raise not_unpacked("invalid", topic="t", partition=0, offset=7)

    with pytest.raises(UndecodableRecord, match="invalid"):
        BatchApplier(Refused(PackedLog(), "skip"), None, patience=0.0).apply(WHOLE)
