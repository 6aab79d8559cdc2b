"""What MySQL's connector really sent, decoded: rows of usual values in six encodings. See tests/recordings."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    Time,
)
from sqlalchemy.dialects import mysql

from cdc import ChangeDecoder, ChangeEvent, Op
from cdc.errors import UndecodableChange
from tests.recordings.record_mysql import ENCODINGS, OUTPUT, TABLES

# Column: the declared type and the value that was written.
COLUMNS: dict[str, tuple[Any, Any]] = {
    "a_tinyint": (SmallInteger, 7),
    "a_boolean": (Boolean, True),
    "a_smallint": (SmallInteger, 7),
    "a_mediumint": (Integer, 7),
    "an_int": (Integer, 7),
    "an_unsigned_int": (BigInteger, 7),
    "a_bigint": (BigInteger, 7),
    "a_decimal": (Numeric(12, 4), Decimal("12.5")),
    "a_float": (Float, 1.5),
    "a_double": (Double, 1.5),
    "a_bit": (mysql.BIT(1), "1"),
    "bits": (mysql.BIT(10), "1000000001"),
    "a_date": (Date, dt.date(2013, 1, 31)),
    "a_time": (Time, dt.time(13, 14, 15)),
    "a_time_6": (Time, dt.time(13, 14, 15, 123456)),
    "a_datetime": (DateTime, dt.datetime(2013, 1, 31, 13, 14, 15)),
    "a_datetime_6": (DateTime, dt.datetime(2013, 1, 31, 13, 14, 15, 123456)),
    "a_timestamp": (DateTime(timezone=True), dt.datetime(2013, 1, 31, 13, 14, 15, tzinfo=dt.UTC)),
    "a_year": (Integer, 2013),
    "a_char": (String(5), "ab"),
    "a_varchar": (String(20), "ab"),
    "a_binary": (LargeBinary, b"\x00\xff\x00\x00"),
    "a_varbinary": (LargeBinary, b"\x00\xff"),
    "an_enum": (mysql.ENUM("calm", "cross"), "cross"),
    "a_set": (String(10), "a,c"),
    "a_json": (mysql.JSON, {"a": [1, None, 1.5]}),
}
TABLE = Table(
    "every_type",
    MetaData(),
    Column("id", Integer, primary_key=True),
    *(Column(name, kind) for name, (kind, _) in COLUMNS.items()),
)
SNAPSHOT, STREAM = 1, 11


def decoded(encoding: str, key: int, table: Table = TABLE) -> ChangeEvent:
    """The first change of a key."""
    records = json.loads(gzip.decompress(OUTPUT.read_bytes()))[encoding]["topics"][TABLES[0]]
    found = next((offset, k, v) for offset, (k, v) in enumerate(records) if k and v and _id(k) == key)
    return ChangeDecoder(table).decode(found[1].encode(), found[2].encode(), offset=found[0])


def _id(key: str) -> int:
    body = json.loads(key)
    return int(body.get("payload", body)["id"])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("key", [SNAPSHOT, STREAM], ids=["snapshot", "stream"])
def test_values_come_out_as_they_went_in(encoding: str, key: int) -> None:
    wanted = {"id": key, **{name: value for name, (_, value) in COLUMNS.items()}}
    if encoding == "schemas-connect":  # to the millisecond
        wanted |= {
            "a_time_6": dt.time(13, 14, 15, 123000),
            "a_datetime_6": dt.datetime(2013, 1, 31, 13, 14, 15, 123000),
        }

    assert decoded(encoding, key).after == wanted


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_streamed_changes_are_newer_than_the_snapshot_s_rows(encoding: str) -> None:
    snapshot, streamed = decoded(encoding, SNAPSHOT), decoded(encoding, STREAM)

    assert (snapshot.op, streamed.op) == (Op.SNAPSHOT, Op.INSERT)
    assert snapshot.position is not None
    assert streamed.position is not None
    assert snapshot.position < streamed.position


def test_a_time_of_more_than_a_day_is_refused_where_it_arrives() -> None:
    table = Table("every_type", MetaData(), Column("id", Integer, primary_key=True), Column("a_time", Time))

    with pytest.raises(UndecodableChange, match="a_time"):
        decoded("schemas-microseconds", STREAM + 1, table)
