"""Change events decoded from JSON as Debezium 3.7 writes it, and maps (hstore), built as Debezium documents them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from enum import Enum as PythonEnum
from typing import Any

import pytest
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Enum,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Text,
    Time,
    Uuid,
)
from sqlalchemy.dialects.postgresql import HSTORE

from cdc.changes import rules
from cdc.changes.change_event import ChangeDecoder, Op
from cdc.changes.change_records import SourcePosition
from cdc.errors import UndecodableChange, UnsupportedEncoding
from tests.rows import each_row

CUSTOMERS = Table(
    "customers",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("credit", Numeric(12, 2)),
    Column("born", Date),
    Column("seen", DateTime(timezone=True)),
    Column("local", DateTime),
    Column("at", Time),
    Column("ratio", Double),
    Column("active", Boolean),
    Column("doc", JSON),
    Column("uid", Uuid),
    Column("raw", LargeBinary),
    Column("tags", ARRAY(Text)),
    Column("counts", ARRAY(BigInteger)),
    Column("state", Enum("new", "old", name="state")),
    schema="public",
)

ROW: dict[str, Any] = {
    "id": 1,
    "name": "Ann",
    "credit": "12.50",
    "born": "1980-02-29Z",
    "seen": "2024-01-02T01:04:05.678901Z",
    "local": "2024-01-02T03:04:05.6Z",
    "at": "12:34:56.5Z",
    "ratio": 0.1,
    "active": True,
    "doc": '{"a": [1, 2]}',
    "uid": "a1b2c3d4-0000-4000-8000-000000000001",
    "raw": "AP8=",
    "tags": ["a", None],
    "counts": [1, 2],
    "state": "new",
    "not_declared": "left out",
}


def value(op: str, *, after: Any = None, before: Any = None, lsn: int = 7, snapshot: str = "false") -> bytes:
    source = {"lsn": lsn, "snapshot": snapshot, "ts_ms": 1795256557610}
    return json.dumps({"before": before, "after": after, "source": source, "op": op}).encode()


def decode(record: bytes | None, *, key: bytes | None = b'{"id":1}', offset: int = 3, **options: Any) -> Any:
    return ChangeDecoder(CUSTOMERS, **options).decode(key, record, offset=offset, place="shop[0]@3")


def test_an_update_tells_its_position_its_time_and_no_old_row() -> None:
    change = decode(value("u", after=ROW, lsn=28323520), offset=9)
    assert (change.op, change.before) == (Op.UPDATE, None)
    assert change.position == SourcePosition(epoch=0, streamed=True, position=28323520, offset=9)
    assert change.time == datetime(2026, 11, 21, 10, 22, 37, 610000, tzinfo=UTC)


@pytest.mark.parametrize("mark", ["true", "first", "first_in_data_collection", "last", "incremental"])
def test_a_snapshot_row_loses_to_a_streamed_one_even_of_a_lower_lsn(mark: str) -> None:
    snapshot = decode(value("r", after=ROW, lsn=110, snapshot=mark), offset=50)
    streamed = decode(value("u", after=ROW, lsn=100), offset=2)

    assert snapshot.op is Op.SNAPSHOT
    assert snapshot.position < streamed.position


def test_positions_order_by_epoch_then_lsn_then_offset() -> None:
    ordered = [
        SourcePosition(0, streamed=False, position=900, offset=0),
        SourcePosition(0, streamed=True, position=5, offset=9),
        SourcePosition(0, streamed=True, position=6, offset=1),
        SourcePosition(0, streamed=True, position=6, offset=2),
        SourcePosition(1, streamed=False, position=1, offset=3),
    ]
    shuffled = random.Random(7).sample(ordered, len(ordered))

    assert sorted(shuffled) == ordered


def test_a_row_that_is_not_whole_or_gone_cannot_be_completed() -> None:
    with pytest.raises(UndecodableChange, match=r"\['doc'\] are not in the change"):
        decode(value("u", after=ROW | {"doc": rules.UNAVAILABLE})).completed(None)
    with pytest.raises(UndecodableChange, match="leaves no row"):
        decode(value("d", before={"id": 1})).completed({"id": 1})


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("id", "1"),
        ("id", True),
        ("name", 5),
        ("credit", "AfQ="),
        ("credit", 12.5),
        ("born", 3712),
        ("born", "+5877610-06-21Z"),
        ("seen", "endless"),
        ("seen", "2024-01-02T03:04:05"),
        ("local", 1704164645600),
        ("active", 2),
        ("ratio", True),
        ("doc", "{"),
        ("uid", "x"),
        ("raw", "***"),
        ("tags", "a"),
    ],
)
def test_a_value_in_another_encoding_is_refused_with_its_column_and_place(column: str, wrong: Any) -> None:
    with pytest.raises(UndecodableChange) as failure:
        decode(value("c", after=ROW | {column: wrong}))

    assert f"column {column!r} of table public.customers" in failure.value.message
    assert failure.value.place == "shop[0]@3"


def test_a_null_in_a_column_that_must_have_a_value_is_refused() -> None:
    with pytest.raises(UndecodableChange, match=r"'name' of table .* must have a value"):
        decode(value("c", after=ROW | {"name": None}))


@pytest.mark.parametrize("key", [None, b'{"other":1}', b"1", b'{"id":"x"}'])
def test_a_key_of_another_table_is_refused(key: bytes | None) -> None:
    with pytest.raises(UndecodableChange):
        decode(value("c", after=ROW), key=key)


class Colour(PythonEnum):
    RED = "red"
    DARK_RED = "dark red"


STORED = Enum(Colour, values_callable=lambda kind: [member.value for member in kind])


@each_row(
    ("kind", "sent", "read"), [(Numeric(asdecimal=False), "1.5", 1.5), (STORED, "dark red", Colour.DARK_RED)], ids=str
)
def test_a_value_is_what_the_declared_column_makes_of_it(kind: Any, sent: str, read: Any) -> None:
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("x", kind))
    record = value("c", after={"id": 1, "x": sent})
    assert ChangeDecoder(table).decode(b'{"id": 1}', record, offset=0).after == {"id": 1, "x": read}


def test_readers_are_made_once_for_each_schema_however_the_records_of_two_alternate() -> None:
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("name", Text))
    decoder = ChangeDecoder(table)
    for turn in range(50):
        row = [{"field": "id", "type": "int32"}, {"field": "name", "type": "string", "version": turn % 2}]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": row[: 1 + turn % 2]}]}
        key = {"schema": {"type": "struct", "fields": row[:1]}, "payload": {"id": 1}}
        payload = {"op": "c", "after": {"id": 1, "name": None}, "source": {"lsn": 7, "snapshot": "false"}}
        record = json.dumps({"schema": schema, "payload": payload}).encode()
        assert decoder.decode(json.dumps(key).encode(), record, offset=turn).after == {"id": 1, "name": None}

    assert len(decoder._described) == 3  # two of rows, one of keys


def test_columns_of_one_name_in_avro_are_refused_where_records_are_avro() -> None:
    names = ("e-mail", "e mail")
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), *(Column(name, Text) for name in names))

    with pytest.raises(UnsupportedEncoding, match="'e-mail' and 'e mail' of table t have the same name in Avro"):
        ChangeDecoder(table, schemas=lambda schema_id: None)  # type: ignore[arg-type, return-value]
    ChangeDecoder(table)


PARTS = Table("parts", MetaData(), Column("id", Integer, primary_key=True), Column("sizes", HSTORE))
SIZES = {"small": "1", "large": None}


def decoded(value: Any, *, schema: dict[str, Any] | None = None) -> Any:
    body: Any = {"op": "u", "after": {"id": 1, "sizes": value}, "source": {"lsn": 7, "snapshot": "false"}}
    if schema is not None:
        row = [{"field": "id", "type": "int32"}, {"field": "sizes", **schema}]
        envelope = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": row}]}
        body = {"schema": envelope, "payload": body}
    return ChangeDecoder(PARTS).decode(b'{"id": 1}', json.dumps(body).encode(), offset=0)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (json.dumps(SIZES), None),
        (json.dumps(SIZES), {"type": "string", "name": "io.debezium.data.Json"}),
        (SIZES, None),
        (SIZES, {"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}}),
    ],
    ids=["text", "text with schema", "map", "map with schema"],
)
def test_a_map_comes_out_as_it_went_in(value: Any, schema: dict[str, Any] | None) -> None:
    assert decoded(value, schema=schema).after == {"id": 1, "sizes": SIZES}


@pytest.mark.parametrize("mark", [rules.UNAVAILABLE, {rules.UNAVAILABLE: rules.UNAVAILABLE}], ids=["text", "map"])
def test_a_map_that_an_update_left_alone_is_unavailable(mark: Any) -> None:
    assert decoded(mark).unavailable == {"sizes"}


@pytest.mark.parametrize("wrong", ["[1]", "not JSON", 7, ["a"]])
def test_what_is_no_map_is_refused_with_its_column(wrong: Any) -> None:
    with pytest.raises(UndecodableChange, match="sizes"):
        decoded(wrong)
