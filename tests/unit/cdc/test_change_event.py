"""Change events decoded from JSON as Debezium 3.7 writes it, and maps (hstore), built as Debezium documents them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum as PythonEnum
from typing import Any

import pytest
import sqlalchemy as sa
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

from cdc import capture_table, decode_message
from cdc.changes import rules
from cdc.changes.change_event import ChangeDecoder, Op
from cdc.changes.change_records import SourcePosition
from cdc.errors import InvalidConnector, UndecodableChange, UnsupportedEncoding
from eventstore.backends.sql.sqlite_log import SqliteLog
from tests.rows import each_row
from tests.unit.cdc.malformed_changes import MALFORMED, written
from tests.unit.cdc.schema_changes import CASES, ITEMS, OLD, WHOLE, WRITTEN, Change, flattened, in_json, registered

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


# ---- A record that is no change of a row is refused with its place, and a column that one lacks is no NULL


def decoder(**options: Any) -> ChangeDecoder:
    return ChangeDecoder(ITEMS, schemas=registered, **options)


def decoded_of(change: Change, encoding: str, **options: Any) -> Any:
    return decoder(**options).decode(*WRITTEN[encoding](change, 1), offset=7, place="items[0]@7")


def value_of(row: Any) -> dict[str, Any]:
    return {"id": 1, **{name: row[name] for name in ("name", "tier")}, "rate": Decimal(row["rate"])}


@each_row("encoding", WRITTEN)
@each_row("case", CASES)
def test_each_record_is_read_whole_or_refused_with_the_columns_that_it_lacks(encoding: str, case: str) -> None:
    for change in CASES[case][0]:
        if not change.lacks:
            row = change.row
            assert decoded_of(change, encoding).after == (None if row is None else value_of(row))
            continue
        with pytest.raises(UndecodableChange) as refused:
            decoded_of(change, encoding)
        assert f"no column {', '.join(change.lacks)}, which table public.items declares" in refused.value.message
        assert refused.value.place == "items[0]@7"


def test_the_remedy_names_the_table_to_read_again_and_the_declaration() -> None:
    with pytest.raises(UndecodableChange) as refused:
        decoded_of(Change({"name": "Ann"}, 1), "json")

    assert "factfold cdc snapshot take … --table public.items" in refused.value.remedy
    assert "null_if_absent=['tier', 'rate']" in refused.value.remedy


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_column_that_is_declared_so_is_null_in_a_record_that_lacks_it_and_only_there(encoding: str) -> None:
    absent, sent = (decoded_of(Change(row, 1), encoding, null_if_absent=["tier"]).after for row in (OLD, WHOLE))

    assert (absent["tier"], sent["tier"]) == (None, "gold")
    with pytest.raises(UndecodableChange, match="no column rate"):
        decoded_of(Change({"name": "Ann"}, 1), encoding, null_if_absent=["tier"])


@pytest.mark.parametrize("column", ["id", "other", "code"])
def test_a_key_an_unknown_column_and_one_that_must_have_a_value_are_never_null(column: str) -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
                     sa.Column("code", sa.Text, nullable=False))  # fmt: skip

    with pytest.raises(InvalidConnector, match=f"{column!r}, which is no nullable column of table t"):
        ChangeDecoder(table, null_if_absent=["name", column])


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_value_that_a_retyped_column_has_is_never_rounded(encoding: str) -> None:
    with pytest.raises(UndecodableChange, match=r"'rate' of table public\.items cannot hold '1\.2345'"):
        decoded_of(Change(WHOLE | {"rate": "1.2345"}, 1), encoding)


@pytest.mark.parametrize("row", [OLD, WHOLE, {**WHOLE, "more": 1}])
def test_a_flattened_row_is_no_change_event_whatever_its_columns_are(row: Any) -> None:
    with pytest.raises(UndecodableChange, match=r"no source\.lsn"):
        decoder().decode(*flattened(Change(row, 1), 1), offset=0)


def test_what_a_row_was_before_has_the_columns_of_its_record_alone() -> None:
    body = json.loads(in_json(Change(None, 1), 1)[1]) | {"before": {"id": 1, **OLD}}
    change = decoder(full_identity=True).decode(b'{"id": 1}', json.dumps(body).encode(), offset=0)

    assert change.before == {"id": 1, "name": "Ann", "rate": Decimal("1.50")}


def test_a_column_that_a_capture_in_sqlite_does_not_have_is_refused_until_it_is_captured(tmp_path: Any) -> None:
    captured, table = (
        sa.Table("items", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
                 *(sa.Column(name, sa.Text) for name in names)) for names in (["name"], ["name", "tier"])
    )  # fmt: skip
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, name="Ann", tier="gold"))
    capture_table(engine, captured, topic="items")
    capture_table(engine, table, topic="items")
    engine.dispose()

    with SqliteLog(engine.url.database or "") as log:
        (page,) = log.records("items", 0, log.end_offsets(["items"])["items"][0])
    before, after = ((record[1].encode(), record[2]) for record in page)
    with pytest.raises(UndecodableChange, match="no column tier"):
        ChangeDecoder(table).decode(*before, offset=0)
    assert (ChangeDecoder(table).decode(*after, offset=1).after or {})["tier"] == "gold"


AT = "items[0]@7"
DECODER = ChangeDecoder(ITEMS, schemas=registered)


@each_row(("encoding", "what"), [(encoding, what) for encoding, records in MALFORMED.items() for what in records])
def test_what_is_no_change_of_a_row_is_refused_with_its_place(encoding: str, what: str) -> None:
    with pytest.raises(UndecodableChange) as refused:
        DECODER.decode(*MALFORMED[encoding][what], offset=7, place=AT)

    assert refused.value.place == AT


@pytest.mark.parametrize("encoding", MALFORMED)
def test_changes_of_every_form_are_read(encoding: str) -> None:
    for key, value in written(encoding).values():
        assert DECODER.decode(key, value, offset=7).key == {"id": 1}


DEEP = "[" * 5_000
SCHEMA: dict[str, Any] = {"field": "after", "type": "struct", "fields": []}
ODD_SCHEMAS: dict[str, Any] = {
    "a list for a type": {"type": ["struct"], "fields": []},
    "a number for fields": {"type": "struct", "fields": 5},
    "numbers in fields": {"type": "struct", "fields": [5]},
    "a word for a scale": {"type": "struct", "fields": [], "parameters": {"scale": "x"}},
    "a number for parameters": {"type": "struct", "fields": [], "parameters": 5},
    "no type": {"fields": []},
}


@pytest.mark.parametrize("what", ODD_SCHEMAS)
def test_a_schema_that_is_none_of_connect_s_is_refused(what: str) -> None:
    value = json.dumps(
        {"schema": ODD_SCHEMAS[what], "payload": {"op": "u", "after": {}, "source": {"lsn": 1}}}
    ).encode()
    with pytest.raises(UndecodableChange, match="none of Connect's"):
        DECODER.decode(b'{"id": 1}', value, offset=7)


def test_a_position_of_too_many_brackets_is_refused() -> None:
    source = {"snapshot": "incremental", "sequence": DEEP}
    value = json.dumps({"op": "r", "after": {"id": 1}, "source": source}).encode()
    with pytest.raises(UndecodableChange):
        DECODER.decode(b'{"id": 1}', value, offset=7)


@pytest.mark.parametrize("content", ["no base64!", [1], 5, {"a": 1}, "é"])
def test_a_message_of_the_log_without_its_content_is_refused(content: Any) -> None:
    message = {"prefix": "p", "content": content}
    value = json.dumps({"op": "m", "message": message, "source": {"lsn": 1}}).encode()
    with pytest.raises(UndecodableChange, match="no base64"):
        decode_message(value, offset=7)
