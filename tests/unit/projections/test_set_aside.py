"""Records set aside: each once, told in words, and left out of what is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from projections import ProjectionGroup
from projections.errors import InvalidDefinition, ProjectionError, UnknownSchemaId
from projections.faults import MESSAGES, Fault
from projections.logs.port import arrow_record_schema
from projections.logs.set_aside import FAULTS, SetAside, require_bearable
from tests.conformance.ticket_batches import ticket_names
from tests.errors import raises
from tests.rows import each_row


def aside(*faults):
    return SetAside.of(pa.table([list(c) for c in zip(*faults, strict=True)], schema=FAULTS))


def records(topic, *places):
    columns = {"topic": [topic] * len(places), "partition": [p for p, _ in places], "offset": [o for _, o in places]}
    nothing = [None] * len(places)
    return pa.table({**columns, "key": nothing, "value": nothing}, schema=arrow_record_schema(headed=False))


FIRST, SECOND = ("t", 0, 7, "bad_json", None), ("t", 1, 7, "bad_value", "x")


def test_a_record_with_two_faults_is_set_aside_once_for_the_first():
    found = aside(FIRST, SECOND) | aside(("t", 0, 7, "no_source_time", None))
    assert [(f.partition, f.kind) for f in found] == [(0, "bad_json"), (1, "bad_value")]
    assert found.counts() == {"bad_json": 1, "bad_value": 1}


def test_records_are_left_out_by_topic_partition_and_offset():
    found = aside(FIRST, SECOND, ("t", 300_000, 1 << 40, "bad_json", None))
    left = found.left_out_of(records("t", (0, 7), (0, 8), (1, 7), (2, 7), (300_000, 1 << 40)))
    assert list(zip(left["partition"].to_pylist(), left["offset"].to_pylist(), strict=True)) == [(0, 8), (2, 7)]
    other = records("u", (0, 7))
    assert found.left_out_of(other) == other
    assert SetAside.nothing().left_out_of(other) == other


@each_row("kind", sorted(MESSAGES))
def test_every_kind_of_fault_is_told_with_a_place_and_a_remedy(kind):
    error = Fault("t", 3, 9, kind, "detail").error
    assert error.remedy
    assert error.place == "topic t, partition 3, offset 9"
    assert "{" not in error.message


def test_an_unknown_schema_is_an_error_of_its_own():
    error = Fault("t", 3, 9, "unknown_schema", "77").error
    assert isinstance(error, UnknownSchemaId)
    assert error.schema_id == 77


def test_more_bad_records_than_are_noted_are_no_exception(monkeypatch):
    monkeypatch.setattr("projections.logs.set_aside.MOST_BAD", 1)
    require_bearable(1)
    with raises(ProjectionError, code="too-many-bad-records", match="more than 1 records"):
        require_bearable(2)


def test_a_group_says_what_becomes_of_bad_records_and_its_views_are_the_same():
    strict, tolerant = (ProjectionGroup("t", [ticket_names], bad_records=s) for s in ("fail", "skip"))
    assert strict.fingerprint() == tolerant.fingerprint()
    with pytest.raises(InvalidDefinition, match="has bad_records='ignore'"):
        ProjectionGroup("t", [ticket_names], bad_records="ignore")
