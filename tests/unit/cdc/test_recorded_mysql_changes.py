"""Recorded changes of MySQL: values come out as they went in, and the traps of its documentation are there."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from cdc import ChangeDecoder, ChangeEvent, Op
from cdc.errors import UndecodableChange
from tests.recordings.record_mysql import ENCODINGS as MYSQL_ENCODINGS
from tests.recordings.record_mysql import OUTPUT, TABLES
from tests.rows import each_row

MYSQL_ROWS, MOMENTS = TABLES
SNAPSHOT, STREAM = 1, 11
NOON = dt.datetime(2013, 1, 31, 13, 14, 15)
# Column: the declared type and the value that was written.
COLUMNS: dict[str, tuple[Any, Any]] = {
    "a_tinyint": (sa.SmallInteger, 7), "a_boolean": (sa.Boolean, True), "a_smallint": (sa.SmallInteger, 7),
    "a_mediumint": (sa.Integer, 7), "an_int": (sa.Integer, 7), "an_unsigned_int": (sa.BigInteger, 7),
    "a_bigint": (sa.BigInteger, 7), "a_decimal": (sa.Numeric(12, 4), Decimal("12.5")), "a_float": (sa.Float, 1.5),
    "a_double": (sa.Double, 1.5), "a_bit": (mysql.BIT(1), "1"), "bits": (mysql.BIT(10), "1000000001"),
    "a_date": (sa.Date, NOON.date()), "a_time": (sa.Time, NOON.time()),
    "a_time_6": (sa.Time, dt.time(13, 14, 15, 123456)), "a_datetime": (sa.DateTime, NOON),
    "a_datetime_6": (sa.DateTime, NOON.replace(microsecond=123456)),
    "a_timestamp": (sa.DateTime(timezone=True), NOON.replace(tzinfo=dt.UTC)), "a_year": (sa.Integer, 2013),
    "a_char": (sa.String(5), "ab"), "a_varchar": (sa.String(20), "ab"),
    "a_binary": (sa.LargeBinary, b"\x00\xff\x00\x00"), "a_varbinary": (sa.LargeBinary, b"\x00\xff"),
    "an_enum": (mysql.ENUM("calm", "cross"), "cross"), "a_set": (sa.String(10), "a,c"),
    "a_json": (mysql.JSON, {"a": [1, None, 1.5]}),
}  # fmt: skip


def mysql_table(columns: Any) -> sa.Table:
    kinds = (sa.Column(name, kind) for name, (kind, _) in columns.items())
    return sa.Table("every_type", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *kinds)


@cache
def records(encoding: str, topic: str = MYSQL_ROWS) -> list[tuple[str | None, str | None]]:
    held = json.loads(gzip.decompress(OUTPUT.read_bytes()))[encoding]["topics"][topic]
    return [(key, value) for key, value in held]


def payload(text: str | None) -> Any:
    body = None if text is None else json.loads(text)
    return body["payload"] if isinstance(body, dict) and body.keys() == {"schema", "payload"} else body


def decoded(encoding: str, key: int, columns: Any = COLUMNS) -> ChangeEvent:
    """The first change of a key."""
    found = ((o, k, v) for o, (k, v) in enumerate(records(encoding)) if k and v and payload(k)["id"] == key)
    offset, of_key, value = next(found)
    return ChangeDecoder(mysql_table(columns)).decode(of_key.encode(), value.encode(), offset=offset)


@each_row("encoding", MYSQL_ENCODINGS)
@each_row("key", [SNAPSHOT, STREAM])
def test_values_come_out_as_they_went_in(encoding: str, key: int) -> None:
    wanted = {"id": key, **{name: value for name, (_, value) in COLUMNS.items()}}
    if encoding == "schemas-connect":  # to the millisecond
        wanted |= {"a_time_6": dt.time(13, 14, 15, 123000), "a_datetime_6": NOON.replace(microsecond=123000)}
    assert decoded(encoding, key).after == wanted


@each_row("encoding", MYSQL_ENCODINGS)
def test_streamed_changes_are_newer_than_the_snapshot_s_rows(encoding: str) -> None:
    snapshot, streamed = decoded(encoding, SNAPSHOT), decoded(encoding, STREAM)
    assert (snapshot.op, streamed.op) == (Op.SNAPSHOT, Op.INSERT)
    assert snapshot.position is not None
    assert streamed.position is not None
    assert snapshot.position < streamed.position


def test_a_time_of_more_than_a_day_is_refused_where_it_arrives() -> None:
    with pytest.raises(UndecodableChange, match="a_time"):
        decoded("schemas-microseconds", STREAM + 1, {"a_time": (sa.Time, None)})


def test_the_traps_that_the_documentation_names_are_those_of_the_recording() -> None:
    after = {(encoding, payload(key)["id"]): payload(value)["after"]
             for encoding in MYSQL_ENCODINGS
             for key, value in reversed(records(encoding)) if key and value}  # fmt: skip
    edge = {encoding: after[encoding, STREAM + 1] for encoding in MYSQL_ENCODINGS}
    longest = (838 * 3600 + 59 * 60 + 59) * 1_000_000
    assert {encoding: row["a_time"] for encoding, row in edge.items() if row["a_time"] is not None} == {
        "schemas-adaptive": longest, "schemas-microseconds": longest, "schemas-nanoseconds": longest * 1000,
    }  # fmt: skip
    assert [encoding for encoding, row in edge.items() if row["a_datetime"] is None] == ["schemas-nanoseconds"]
    assert [after["plain", 31][name] for name in ("a_date", "a_datetime", "a_timestamp")] == [None] * 3
    assert edge["plain"]["an_unsigned_bigint"] == -1
    assert (after["plain", SNAPSHOT + 1]["a_float"], edge["plain"]["a_float"]) == (-3.40282e38, -3.4028235e38)


def test_a_changed_key_a_truncation_and_a_key_of_time_are_told_as_the_documentation_says() -> None:
    of_rows = [(payload(key), payload(value)) for key, value in records("plain")]
    told = [(key["id"], value and value["op"]) for key, value in of_rows if key]
    at = told.index((12, "d"))
    assert told[at : at + 3] == [(12, "d"), (12, None), (21, "c")]
    assert [key for key, value in of_rows if value and value["op"] == "t"] == [None]
    first, *_, last = records("plain", MOMENTS)
    assert payload(first[0]) == {"moment": "2013-01-31T13:14:15.123456Z", "number": -1}
    assert last == (first[0], None)
