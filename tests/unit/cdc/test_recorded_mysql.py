"""What MySQL's connector really sends, as it was recorded: the traps that our declarations tell of."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest

from cdc.connectors.encodings import SCHEMAS_ENABLED
from tests.recordings import mysql_types
from tests.recordings.record_mysql import ENCODINGS, OUTPUT, TABLES

ROWS, MOMENTS = TABLES
SNAPSHOT, STREAM = 1, 11


@cache
def recorded(encoding: str) -> dict[str, list[tuple[Any, Any]]]:
    """The records of one encoding's topics, parsed, without their schemas."""
    held = json.loads(gzip.decompress(OUTPUT.read_bytes()))[encoding]["topics"]
    return {topic: [(_payload(key), _payload(value)) for key, value in records] for topic, records in held.items()}


def _payload(text: str | None) -> Any:
    parsed = None if text is None else json.loads(text)
    return parsed["payload"] if isinstance(parsed, dict) and parsed.keys() == {"schema", "payload"} else parsed


def row(encoding: str, key: int) -> dict[str, Any]:
    """The first row with a key, as it is after its first change."""
    after: dict[str, Any] = next(value["after"] for found, value in recorded(encoding)[ROWS] if found == {"id": key})
    return after


def test_every_declared_encoding_was_recorded() -> None:
    held = json.loads(gzip.decompress(OUTPUT.read_bytes()))

    assert sorted(held) == sorted(ENCODINGS)
    assert {len(recorded(encoding)[ROWS]) for encoding in ENCODINGS} == {len(recorded("plain")[ROWS])}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_keys_and_values_carry_a_schema_where_the_declaration_says_so(encoding: str) -> None:
    records = json.loads(gzip.decompress(OUTPUT.read_bytes()))[encoding]["topics"][ROWS]
    declared = ENCODINGS[encoding][0].converter()[f"converter.{SCHEMAS_ENABLED}"] == "true"

    assert [json.loads(key).keys() == {"schema", "payload"} for key, value in records if key and value] == [
        declared for key, value in records if key and value
    ]


def test_every_column_is_there_and_no_edge_is_missing_but_those_of_times() -> None:
    plain = row("plain", SNAPSHOT + 1)

    assert plain.keys() == {"id", *mysql_types.COLUMNS}
    assert [name for name, value in plain.items() if value is None] == ["a_time", "a_time_6"]


def test_times_beyond_a_day_are_kept_by_the_modes_that_count_in_microseconds_or_less() -> None:
    times = {encoding: row(encoding, STREAM + 1)["a_time"] for encoding in ENCODINGS}
    longest = (838 * 3600 + 59 * 60 + 59) * 1_000_000

    assert {encoding: time for encoding, time in times.items() if time is not None} == {
        "schemas-adaptive": longest,
        "schemas-microseconds": longest,
        "schemas-nanoseconds": longest * 1000,
    }


def test_nanoseconds_do_not_reach_from_the_first_year_to_the_last() -> None:
    assert [encoding for encoding in ENCODINGS if row(encoding, STREAM + 1)["a_datetime"] is None] == [
        "schemas-nanoseconds"
    ]


def test_dates_that_are_none_come_as_null() -> None:
    zero = row("plain", 31)

    assert (zero["a_date"], zero["a_datetime"], zero["a_timestamp"]) == (None, None, None)


def test_big_unsigned_numbers_come_as_what_their_bits_say_with_a_sign() -> None:
    assert row("plain", STREAM + 1)["an_unsigned_bigint"] == -1


def test_the_snapshot_of_a_float_has_fewer_digits_than_its_changes() -> None:
    assert (row("plain", SNAPSHOT + 1)["a_float"], row("plain", STREAM + 1)["a_float"]) == (-3.40282e38, -3.4028235e38)


def test_all_else_is_the_same_in_snapshot_and_stream() -> None:
    for kind in range(3):
        snapshot, stream = row("plain", SNAPSHOT + kind), row("plain", STREAM + kind)
        assert {k for k in snapshot if snapshot[k] != stream[k]} <= {"id", "a_float"}


def test_a_changed_key_is_a_deletion_with_its_tombstone_and_a_creation() -> None:
    of_keys = [(key["id"], value and value["op"]) for key, value in recorded("plain")[ROWS] if key]

    at = of_keys.index((12, "d"))
    assert of_keys[at : at + 3] == [(12, "d"), (12, None), (21, "c")]


def test_a_truncation_has_no_key() -> None:
    assert [key for key, value in recorded("plain")[ROWS] if value and value["op"] == "t"] == [None]


def test_a_key_of_time_and_number_is_written_as_a_value_is() -> None:
    key, _ = recorded("plain")[MOMENTS][0]

    assert key == {"moment": "2013-01-31T13:14:15.123456Z", "number": -1}
    assert recorded("plain")[MOMENTS][-1] == (key, None)
