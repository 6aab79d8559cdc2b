"""What the real connector sent, in ten encodings, decoded: every type, and every trap. See tests/recordings."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import ARRAY, Column, Double, Integer, LargeBinary, MetaData, Numeric, Table, Text, Uuid
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import JSONB

from cdc import ChangeDecoder, ChangeEvent, Op, decode_message
from cdc.changes.change_records import SourcePosition
from cdc.errors import UndecodableChange, UnsupportedEncoding
from tests.recordings import traps
from tests.recordings.every_type import CASES, ROWS, TypeCase, Value
from tests.recordings.reading import Recording, recordings
from tests.recordings.record_mysql import ENCODINGS as MYSQL_ENCODINGS
from tests.recordings.record_mysql import OUTPUT, TABLES
from tests.rows import each_row

ENCODINGS = tuple(recordings())
# Bytes as text: standard base64, URL-safe base64, hexadecimal. A reader could take one for the other.
BYTES_AS_TEXT = ("schemas-adaptive-micros", "schemas-microseconds", "schemas-nanoseconds")
NUMERIC_INTERVALS = ("schemas-adaptive", "schemas-adaptive-micros", "schemas-connect", "avro-adaptive", "avro-connect")
PRECISE = ("schemas-adaptive", "schemas-microseconds", "schemas-connect", "avro-adaptive")
TO_THE_MILLISECOND = ("schemas-connect", "avro-connect")
ISO_TIMES = ("plain", "schemas-isostring", "avro-isostring")
AS_DOUBLE = ("schemas-adaptive-micros", "avro-connect")


def table_of(case: TypeCase) -> Table:
    return Table(
        "every_type",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("row", Text),
        Column(case.name, case.type),
    )


def changes(recording: Recording, table: Table, topic: str, *, full_identity: bool = False) -> list[ChangeEvent]:
    decoder = ChangeDecoder(table, full_identity=full_identity, schemas=recording.schema if recording.is_avro else None)
    records = recording.topics[topic]
    return [decoder.decode(key, value, offset=offset) for offset, (key, value) in enumerate(records)]


def expected(case: TypeCase, row: str, encoding: str) -> Value:
    """What must come out: what went in, but for what an encoding is known to change on the way."""
    value = case.values.get(row) or Value("NULL")
    if encoding in AS_DOUBLE and isinstance(value.python, Decimal) and value.python.is_finite():
        return replace(value, python=Decimal(str(float(value.python))))
    return _as_sent(case, row, value, encoding)


def _as_sent(case: TypeCase, row: str, value: Value, encoding: str) -> Value:
    match case.name, row:
        case "free", "odd" if encoding in PRECISE:
            return Value(value.sql)  # no precise decimal is NaN: Debezium sends null
        case "moment", "low" | "high" if encoding == "schemas-nanoseconds":
            return Value(value.sql)  # beyond 64 bits of nanoseconds: Debezium sends null
        case "alarm", "odd" if encoding in ISO_TIMES:
            return Value(value.sql, dt.time(0))  # the day's end becomes its beginning
        case "span", "odd" if encoding in NUMERIC_INTERVALS:
            return Value(value.sql, dt.timedelta(days=30.4375))  # a month of Debezium's
    if encoding in TO_THE_MILLISECOND and case.name in ("moment", "moments", "alarm") and "infinity" not in value.sql:
        return replace(value, python=_cut(value.python))
    return value


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return value and value.replace(microsecond=value.microsecond // 1000 * 1000)


def rows_of(recording: Recording, case: TypeCase) -> Iterator[tuple[str, Any]]:
    """The name of each row that can be decoded, with its value; the others are refused here, as they must be."""
    table = table_of(case)
    decoder = ChangeDecoder(table, full_identity=True, schemas=recording.schema if recording.is_avro else None)
    for offset, (key, value) in enumerate(recording.topics["public.every_type"]):
        name = ROWS[offset % len(ROWS)]
        if expected(case, name, recording.encoding).refused:
            with pytest.raises(UndecodableChange, match=case.name):
                decoder.decode(key, value, offset=offset)
        else:
            change = decoder.decode(key, value, offset=offset)
            assert change.after is not None
            assert change.after["row"] == name
            yield name, change.after[case.name]


@each_row("encoding", ENCODINGS)
@each_row("case", [case for case in CASES if case.name != "vbits"], ids=lambda case: case.name)
def test_a_value_comes_out_as_it_went_in_from_snapshot_and_stream(case: TypeCase, encoding: str) -> None:
    if case.name == "raw" and encoding in BYTES_AS_TEXT:
        with pytest.raises(UnsupportedEncoding, match="base64 or hexadecimal"):
            list(rows_of(recordings()[encoding], case))
        return
    found = list(rows_of(recordings()[encoding], case))

    assert len(found) >= len(ROWS)
    for name, value in found:
        wanted = expected(case, name, encoding).python
        assert repr(value) == repr(wanted) or value == wanted, name
        assert type(value) is type(wanted), name


def test_bits_of_varying_number_are_refused_when_declared() -> None:
    case = next(case for case in CASES if case.name == "vbits")

    with pytest.raises(UnsupportedEncoding, match="vbits"):
        ChangeDecoder(table_of(case))


APART = Table(
    "stored_apart",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("label", Text, nullable=False),
    Column("notes", Text),
    Column("raw", LargeBinary),
    Column("doc", JSONB),
    Column("words", ARRAY(Text)),
    Column("numbers", ARRAY(Integer)),
    Column("bigs", ARRAY(Integer)),
    Column("uids", ARRAY(Uuid)),
)
LONG = ("notes", "raw", "doc", "words", "numbers", "bigs", "uids")


@pytest.fixture(params=[encoding for encoding in ENCODINGS if encoding not in BYTES_AS_TEXT])
def apart(request: pytest.FixtureRequest) -> list[ChangeEvent]:
    return changes(recordings()[request.param], APART, traps.APART)


def test_a_value_that_an_update_left_alone_is_unavailable_and_the_known_one_stays(apart: list[ChangeEvent]) -> None:
    inserted, updated = apart[0], apart[1]

    assert inserted.unavailable == frozenset()
    assert updated.unavailable == frozenset(LONG)
    assert updated.completed(inserted.after) == {**(inserted.after or {}), "label": "second"}


def test_a_changed_primary_key_is_a_delete_a_tombstone_and_an_insert(apart: list[ChangeEvent]) -> None:
    gone, tombstone, new = apart[2:5]

    assert (gone.op, gone.key, gone.before) == (Op.DELETE, {"id": 1}, {"id": 1})
    assert (tombstone.op, tombstone.key, tombstone.position) == (Op.TOMBSTONE, {"id": 1}, None)
    assert (new.op, new.key, new.unavailable) == (Op.INSERT, {"id": 2}, frozenset(LONG))


def test_a_row_s_old_values_are_only_those_of_the_key_without_full_identity(apart: list[ChangeEvent]) -> None:
    assert [change.before for change in apart if change.op is Op.DELETE] == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("kind", [ARRAY(Double), ARRAY(Numeric(12, 2))], ids=["double", "numeric"])
def test_an_array_whose_absence_comes_as_null_is_refused_without_full_identity(kind: Any) -> None:
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("items", kind))

    with pytest.raises(UnsupportedEncoding, match=r"t\.items: an update that leaves a long array"):
        ChangeDecoder(table)


@each_row("encoding", ENCODINGS)
def test_with_full_identity_such_an_array_is_there_after_an_update_of_another_column(encoding: str) -> None:
    table = Table(
        "apart_whole", MetaData(), Column("id", Integer, primary_key=True), Column("label", Text),
        Column("ratios", ARRAY(Double)),
    )  # fmt: skip
    inserted, updated = changes(recordings()[encoding], table, traps.APART_WHOLE, full_identity=True)

    assert updated.after == {**(inserted.after or {}), "label": "second"}
    assert updated.before == inserted.after
    assert updated.after["ratios"] == [float(n) for n in range(1, 301)]


WHOLE = Table(
    "whole_before",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("amount", Numeric(12, 2)),
    Column("notes", Text),
)


@pytest.fixture(params=ENCODINGS)
def whole(request: pytest.FixtureRequest) -> list[ChangeEvent]:
    return changes(recordings()[request.param], WHOLE, traps.WHOLE, full_identity=True)


def test_what_happened_is_told_in_its_order(whole: list[ChangeEvent]) -> None:
    assert [(change.op.name, change.key.get("id")) for change in whole] == [
        ("SNAPSHOT", 1), ("SNAPSHOT", 9), ("INSERT", 2), ("UPDATE", 1), ("DELETE", 2), ("TOMBSTONE", 2), ("INSERT", 22),
        ("DELETE", 9), ("TOMBSTONE", 9), ("TRUNCATE", None), ("INSERT", 3), ("SNAPSHOT", 3),
    ]  # fmt: skip


def test_with_full_identity_an_update_tells_the_row_before(whole: list[ChangeEvent]) -> None:
    assert whole[3].before == {"id": 1, "name": "Ann", "amount": Decimal("12.50"), "notes": "before any stream"}
    assert whole[3].after == {**whole[3].before, "amount": Decimal(13)}


def test_a_truncation_has_no_key_and_leaves_no_row(whole: list[ChangeEvent]) -> None:
    truncated = whole[9]

    assert (truncated.key, truncated.before, truncated.after, truncated.removes) == ({}, None, None, True)
    assert whole[8].position is None
    assert truncated.position is not None
    assert whole[7].position < truncated.position < whole[10].position


def test_rows_of_a_snapshot_beside_the_stream_lose_to_streamed_changes(whole: list[ChangeEvent]) -> None:
    inserted, read_again = whole[10], whole[11]

    assert inserted.after == read_again.after
    assert read_again.position < inserted.position


@pytest.mark.parametrize("encoding", BYTES_AS_TEXT)
def test_messages_whose_bytes_are_text_of_an_unknown_form_are_refused(encoding: str) -> None:
    with pytest.raises(UndecodableChange, match="text in an unknown form"):
        decode_message(recordings()[encoding].topics["message"][0][1] or b"", offset=0)


@pytest.mark.parametrize("encoding", [encoding for encoding in ENCODINGS if encoding not in BYTES_AS_TEXT])
def test_messages_in_the_log_come_with_prefix_content_and_place(encoding: str) -> None:
    recording = recordings()[encoding]
    schemas = recording.schema if recording.is_avro else None
    within, alone = (
        decode_message(value or b"", offset=o, schemas=schemas)
        for o, (_, value) in enumerate(recording.topics["message"])
    )

    assert (within.prefix, within.content) == ("audit", b"said within")
    assert (alone.prefix, alone.content) == ("audit", b"said alone")
    assert within.position < alone.position


def test_a_row_s_change_is_no_message_and_a_message_no_row_s_change() -> None:
    recording = recordings()["plain"]
    (key, message), (_, change) = recording.topics["message"][0], recording.topics[traps.WHOLE][0]

    with pytest.raises(UndecodableChange, match="is no message"):
        decode_message(change or b"", offset=0)
    with pytest.raises(UndecodableChange, match="decode_message"):
        ChangeDecoder(WHOLE).decode(key, message, offset=0)


def test_avro_without_a_registry_is_refused_with_the_remedy() -> None:
    key, value = recordings()["avro-adaptive"].topics[traps.WHOLE][0]

    with pytest.raises(UndecodableChange, match=r"schemas=ConfluentRegistry"):
        ChangeDecoder(WHOLE).decode(key, value, offset=0)


# ---- Places of changes in MySQL's log. Built from the schema that Debezium documents, for logs that no recording has


ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


def place(
    file: Any = "mysql-bin.000003", pos: Any = 484, *, snapshot: str = "false", offset: int = 0, **more: Any
) -> Any:
    source = {"connector": "mysql", "ts_ms": 1465581, "snapshot": snapshot, "file": file, "pos": pos, "row": 0}
    op = "c" if snapshot == "false" else "r"
    body = {"before": None, "after": {"id": 1}, "source": source, "op": op, **more}
    return ChangeDecoder(ORDERS).decode(b'{"id": 1}', json.dumps(body).encode(), offset=offset).position


def test_a_place_in_a_later_file_of_the_log_is_later_however_far_the_first_had_grown() -> None:
    assert place("mysql-bin.000009", (1 << 33) + 5) < place("mysql-bin.000010", 4)
    assert place("mysql-bin.999999", 4).position < 1 << 62


def test_rows_of_one_event_keep_their_order_and_those_of_a_snapshot_lose_to_a_lower_place() -> None:
    assert place(offset=0) < place(offset=1)
    assert place(pos=900, snapshot="last") < place(pos=4)


def test_another_life_of_the_source_wins_over_any_place_of_the_one_before() -> None:
    after = place("binlog.000001", 4, snapshot="first", factfold_epoch="1")
    assert after > place("mysql-bin.000900")
    assert after == SourcePosition(1, streamed=False, position=(1 << 38) + 4, offset=0)


@pytest.mark.parametrize("broken", [{"file": None}, {"pos": None}, {"file": "mysql-bin"}])
def test_a_record_without_a_place_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(UndecodableChange, match=r"no source.file and pos"):
        place(**broken)


# ---- What MySQL's connector really sent, in six encodings: usual values, and the traps. See tests/recordings


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
