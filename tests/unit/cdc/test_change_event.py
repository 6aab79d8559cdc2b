"""Change events decoded from JSON as Debezium 3.7 writes it; the samples are of the real connector."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum as PythonEnum
from typing import Any
from uuid import UUID

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
    String,
    Table,
    Text,
    Time,
    Uuid,
)
from sqlalchemy.dialects.postgresql import BIT

from cdc.changes import rules
from cdc.changes.change_event import ChangeDecoder, Op
from cdc.changes.positions import SourcePosition
from cdc.errors import UndecodableChange, UnsupportedEncoding

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

DECODED: dict[str, Any] = {
    "id": 1,
    "name": "Ann",
    "credit": Decimal("12.50"),
    "born": date(1980, 2, 29),
    "seen": datetime(2024, 1, 2, 1, 4, 5, 678901, tzinfo=UTC),
    "local": datetime(2024, 1, 2, 3, 4, 5, 600000),
    "at": time(12, 34, 56, 500000),
    "ratio": 0.1,
    "active": True,
    "doc": {"a": [1, 2]},
    "uid": UUID("a1b2c3d4-0000-4000-8000-000000000001"),
    "raw": b"\x00\xff",
    "tags": ["a", None],
    "counts": [1, 2],
    "state": "new",
}


def value(op: str, *, after: Any = None, before: Any = None, lsn: int = 7, snapshot: str = "false") -> bytes:
    source = {"lsn": lsn, "snapshot": snapshot, "ts_ms": 1795256557610}
    return json.dumps({"before": before, "after": after, "source": source, "op": op}).encode()


def decode(record: bytes | None, *, key: bytes | None = b'{"id":1}', offset: int = 3, **options: Any) -> Any:
    return ChangeDecoder(CUSTOMERS, **options).decode(key, record, offset=offset, place="shop[0]@3")


def test_every_declared_column_arrives_as_its_python_type() -> None:
    change = decode(value("c", after=ROW))

    assert change.op is Op.INSERT
    assert change.key == {"id": 1}
    assert change.after == DECODED
    assert change.time == datetime(2026, 11, 21, 10, 22, 37, 610000, tzinfo=UTC)


def test_an_update_tells_its_position_and_no_old_row() -> None:
    change = decode(value("u", after=ROW, lsn=28323520), offset=9)

    assert change.op is Op.UPDATE
    assert change.before is None
    assert change.position == SourcePosition(epoch=0, streamed=True, position=28323520, offset=9)


def test_a_delete_leaves_no_row_and_of_the_old_one_only_its_key() -> None:
    filled = {"id": 1, "name": "", "active": True}

    change = decode(value("d", before=filled))

    assert change.op is Op.DELETE
    assert change.removes
    assert change.before == {"id": 1}


def test_the_old_row_is_whole_where_the_table_s_identity_is_full() -> None:
    change = decode(value("d", before=ROW), full_identity=True)

    assert change.before == DECODED


def test_a_tombstone_has_a_key_and_no_position() -> None:
    change = decode(None)

    assert (change.op, change.key, change.position, change.removes) == (Op.TOMBSTONE, {"id": 1}, None, True)


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


@pytest.mark.parametrize(
    ("column", "placeholder"),
    [
        ("doc", rules.UNAVAILABLE),
        ("raw", base64.b64encode(rules.UNAVAILABLE.encode()).decode()),
        ("tags", [rules.UNAVAILABLE]),
        ("counts", list(rules.UNAVAILABLE.encode())),
    ],
)
def test_a_column_the_update_left_alone_is_named_and_taken_from_the_stored_row(column: str, placeholder: Any) -> None:
    change = decode(value("u", after=ROW | {column: placeholder, "name": "Bob"}))

    assert change.unavailable == {column}
    assert column not in change.after
    assert change.completed(DECODED) == DECODED | {"name": "Bob"}


def test_an_unavailable_column_without_a_stored_row_is_an_error_and_not_a_null() -> None:
    change = decode(value("u", after=ROW | {"doc": rules.UNAVAILABLE}))

    with pytest.raises(UndecodableChange, match=r"\['doc'\] are not in the change"):
        change.completed(None)


def test_a_deleted_row_cannot_be_completed() -> None:
    with pytest.raises(UndecodableChange, match="leaves no row"):
        decode(value("d", before={"id": 1})).completed(DECODED)


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


def test_special_numbers_arrive_as_such() -> None:
    change = decode(value("c", after=ROW | {"credit": "NAN", "ratio": "Infinity"}))

    assert change.after["credit"].is_nan()
    assert change.after["ratio"] == float("inf")


def test_a_null_in_a_column_that_must_have_a_value_is_refused() -> None:
    with pytest.raises(UndecodableChange, match=r"'name' of table .* must have a value"):
        decode(value("c", after=ROW | {"name": None}))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"\x01\x00\x00", "is not JSON"),
        (b"\x00\x00\x00\x00\x07\x02", "the reader has no schemas"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "no JSON object"),
        (b'{"schema": {}, "payload": {}}', "none of Connect's"),
        (b'{"after": {}, "op": "c"}', "no source.lsn"),
        (value("x", after=ROW), "operation 'x'"),
        (value("c"), "must not stand with such an `after`"),
        (value("d", after=ROW), "must not stand with such an `after`"),
    ],
)
def test_a_record_that_is_no_change_event_is_refused_with_its_place(record: bytes, said: str) -> None:
    with pytest.raises(UndecodableChange, match=said) as failure:
        decode(record)

    assert failure.value.place == "shop[0]@3"


@pytest.mark.parametrize("key", [None, b'{"other":1}', b"1", b'{"id":"x"}'])
def test_a_key_of_another_table_is_refused(key: bytes | None) -> None:
    with pytest.raises(UndecodableChange):
        decode(value("c", after=ROW), key=key)


def test_a_table_with_a_type_that_has_no_self_describing_form_is_refused_when_declared() -> None:
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("span", BIT(8, varying=True)))

    with pytest.raises(UnsupportedEncoding, match=r"t\.span"):
        ChangeDecoder(table)


def test_a_numeric_column_declared_as_float_reads_its_text() -> None:
    table = Table("t", MetaData(), Column("id", String, primary_key=True), Column("x", Numeric(asdecimal=False)))

    change = ChangeDecoder(table).decode(b'{"id":"a"}', value("c", after={"id": "a", "x": "1.5"}), offset=0)

    assert change.after == {"id": "a", "x": 1.5}


class Colour(PythonEnum):
    RED = "red"
    DARK_RED = "dark red"


def test_an_enum_stored_by_its_values_is_read_by_its_values() -> None:
    stored = Enum(Colour, values_callable=lambda kind: [member.value for member in kind])
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("colour", stored))
    record = value("c", after={"id": 1, "colour": "dark red"})

    assert ChangeDecoder(table).decode(b'{"id": 1}', record, offset=0).after == {"id": 1, "colour": Colour.DARK_RED}


@pytest.mark.parametrize(
    "broken",
    [
        {"factfold_epoch": "x"},
        {"source": {"lsn": None, "snapshot": "incremental", "sequence": '["1","x"]'}},
        {"source": {"lsn": 7, "snapshot": "false", "ts_ms": 10**18}},
        {"source": {"lsn": 7, "snapshot": "false", "ts_ms": "x"}},
        {"op": "tombstone"},
        {"op": ["c"]},
    ],
)
def test_a_record_whose_envelope_is_broken_is_refused_with_its_place(broken: dict[str, Any]) -> None:
    body = json.loads(value("c", after=ROW)) | broken

    with pytest.raises(UndecodableChange, match="offset 3"):
        ChangeDecoder(CUSTOMERS).decode(b'{"id": 1}', json.dumps(body).encode(), offset=3)


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
