"""Change events of MySQL. NOT recorded: built from the schema that Debezium documents ("Data type mappings", MySQL)."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Date, DateTime, Integer, MetaData, Numeric, String, Table, Time
from sqlalchemy.dialects import mysql

from cdc import ChangeDecoder, SourcePosition
from cdc.errors import UndecodableChange

ORDERS = Table(
    "orders",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("paid", Boolean),
    Column("total", Numeric(10, 2)),
    Column("serial", BigInteger),
    Column("day", Date),
    Column("at", DateTime),
    Column("seen", DateTime(timezone=True)),
    Column("alarm", Time),
    Column("year", Integer),
    Column("size", mysql.ENUM("S", "L")),
    Column("tags", String(40)),
    Column("doc", mysql.JSON),
    Column("bits", mysql.BIT(10)),
)
# Column: Connect's type, the semantic type, and the value, as the page gives them for adaptive_time_microseconds.
FIELDS: dict[str, tuple[str, str | None, Any]] = {
    "id": ("int32", None, 1),
    "paid": ("boolean", None, True),
    "total": ("bytes", "org.apache.kafka.connect.data.Decimal", "BOI="),
    "serial": ("int64", None, 9007199254740993),
    "day": ("int32", "io.debezium.time.Date", 17390),
    "at": ("int64", "io.debezium.time.MicroTimestamp", 1529507596945104),
    "seen": ("string", "io.debezium.time.ZonedTimestamp", "2018-06-20T06:37:03Z"),
    "alarm": ("int64", "io.debezium.time.MicroTime", 11045678901),
    "year": ("int32", "io.debezium.time.Year", 2018),
    "size": ("string", "io.debezium.data.Enum", "L"),
    "tags": ("string", "io.debezium.data.EnumSet", "a,b"),
    "doc": ("string", "io.debezium.data.Json", '{"a": 1}'),
    "bits": ("bytes", "io.debezium.data.Bits", "AwI="),
}
DECODED = {
    "id": 1,
    "paid": True,
    "total": Decimal("12.50"),
    "serial": 9007199254740993,
    "day": dt.date(2017, 8, 12),
    "at": dt.datetime(2018, 6, 20, 15, 13, 16, 945104),
    "seen": dt.datetime(2018, 6, 20, 6, 37, 3, tzinfo=dt.UTC),
    "alarm": dt.time(3, 4, 5, 678901),
    "year": 2018,
    "size": "L",
    "tags": "a,b",
    "doc": {"a": 1},
    "bits": "1000000011",
}


def source(file: str = "mysql-bin.000003", pos: int = 484, snapshot: str = "false", **more: Any) -> dict[str, Any]:
    return {
        "version": "3.6.1.Final", "connector": "mysql", "name": "shop", "ts_ms": 1465581, "snapshot": snapshot,
        "db": "inventory", "table": "orders", "server_id": 223344, "gtid": None, "file": file, "pos": pos, "row": 0,
        "thread": 7, "query": None, **more,
    }  # fmt: skip


def record(origin: dict[str, Any], op: str = "c", **more: Any) -> tuple[bytes, bytes]:
    """Key and value, in JSON with their schemas."""
    row = [
        {"field": c, "type": kind, "name": name, "parameters": {"scale": "2"}} for c, (kind, name, _) in FIELDS.items()
    ]
    values = {column: value for column, (_, _, value) in FIELDS.items()}
    key = {"schema": {"type": "struct", "fields": row[:1]}, "payload": {"id": 1}}
    envelope = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": row}]}
    payload = {"before": None, "after": values, "source": origin, "op": op, **more}
    return json.dumps(key).encode(), json.dumps({"schema": envelope, "payload": payload}).encode()


def decoded(origin: dict[str, Any], *, offset: int = 0, **more: Any) -> Any:
    return ChangeDecoder(ORDERS).decode(*record(origin, **more), offset=offset)


def test_every_type_of_mysql_is_read_by_its_schema() -> None:
    assert decoded(source()).after == DECODED


def test_a_place_in_a_later_file_of_the_log_is_later_however_far_the_first_had_grown() -> None:
    grown = decoded(source("mysql-bin.000009", (1 << 33) + 5)).position
    later = decoded(source("mysql-bin.000010", 4)).position

    assert grown < later
    assert decoded(source("mysql-bin.999999", 4)).position.position < 1 << 62


def test_rows_of_one_event_keep_the_order_of_their_records() -> None:
    first, second = (decoded(source(row=row), offset=row).position for row in (0, 1))

    assert first < second


def test_a_snapshot_s_row_loses_to_a_streamed_one_of_a_lower_place() -> None:
    assert decoded(source(pos=900, snapshot="last"), op="r").position < decoded(source(pos=4)).position


def test_another_life_of_the_source_wins_over_any_place_of_the_one_before() -> None:
    before = decoded(source("mysql-bin.000900")).position
    after = decoded(source("binlog.000001", 4, snapshot="first"), op="r", factfold_epoch="1").position

    assert after > before
    assert after == SourcePosition(1, streamed=False, position=(1 << 38) + 4, offset=0)


@pytest.mark.parametrize("broken", [{"file": None}, {"pos": None}, {"file": "mysql-bin"}])
def test_a_record_without_a_place_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(UndecodableChange, match=r"no source.file and pos"):
        decoded(source() | broken)
