"""Schemas that come late, schemas that never come, and records that stay bad: with batches that are figures."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from projections import BatchReport
from projections.errors import UndecodableRecord, UnknownSchemaId
from projections.logs.offsets import OffsetRange
from projections.spark.live.applying import BatchApplier

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
