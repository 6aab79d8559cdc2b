"""What the real connector sent, in ten encodings, decoded: every type, and every trap. See tests/recordings."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import ARRAY, Column, Double, Integer, LargeBinary, MetaData, Numeric, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB

from cdc import ChangeDecoder, ChangeEvent, Op, decode_message
from cdc.changes.change_records import SourcePosition
from cdc.errors import UndecodableChange, UnsupportedEncoding
from tests.recordings import traps
from tests.recordings.every_type import CASES, ROWS, TypeCase, Value
from tests.recordings.reading import Recording, recordings
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


@pytest.fixture(params=ENCODINGS)
def whole(request: pytest.FixtureRequest) -> list[ChangeEvent]:
    return changes(recordings()[request.param], traps.MODEL, traps.WHOLE, full_identity=True)


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
        ChangeDecoder(traps.MODEL).decode(key, message, offset=0)


def test_avro_without_a_registry_is_refused_with_the_remedy() -> None:
    key, value = recordings()["avro-adaptive"].topics[traps.WHOLE][0]

    with pytest.raises(UndecodableChange, match=r"schemas=ConfluentRegistry"):
        ChangeDecoder(traps.MODEL).decode(key, value, offset=0)


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
