"""What the real connector sent, decoded inside the JVM as `cdc.ChangeDecoder` decodes it. See tests/recordings."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Text,
    Uuid,
)
from sqlalchemy import Table as SqlTable
from sqlalchemy.dialects.postgresql import BIT, JSONB

from cdc import ChangeDecoder, Op
from cdc.changes.column_readers import reader_for
from cdc.errors import UndecodableChange, UnsupportedEncoding
from projections import Table
from projections.errors import UndecodableRecord
from projections.logs.port import arrow_record_schema
from projections.spark.changes.parsers import parser_of
from projections.spark.changes.semantic_types import typed
from projections.spark.failures import AT, FAULT, described
from projections.spark.kinds import Reduction, kind_of
from tests.recordings import traps
from tests.recordings.every_type import CASES, ROWS, TypeCase
from tests.recordings.reading import Recording, recordings
from tests.rows import each_row

EVERY = "public.every_type"
BYTES_AS_TEXT = ("schemas-adaptive-micros", "schemas-microseconds", "schemas-nanoseconds")
# The row `odd` has values of these that no Python or no Spark type holds.
ODD = ("alarm", "span", "free")


def written_as(recording: Recording) -> str:
    return "avro" if recording.is_avro else "json" if recording.encoding == "plain" else "json-with-schemas"


def captured(recording: Recording, model: SqlTable, **options: Any) -> Any:
    return Table.from_changelog(model, topic="recorded", encoding=written_as(recording), **options)


def model_of(cases: list[TypeCase]) -> SqlTable:
    columns = (Column(case.name, case.type) for case in cases)
    return SqlTable("every_type", MetaData(), Column("id", Integer, primary_key=True), Column("row", Text), *columns)


def raw(
    small: Any, recording: Recording, topic: str, *, leaving_out: tuple[str, ...] = (), named: str | None = None
) -> Any:
    records = [
        {"topic": named or topic, "partition": 0, "offset": offset, "key": key, "value": value}
        for offset, (key, value) in enumerate(recording.topics[topic])
        if topic != EVERY or ROWS[offset % len(ROWS)] not in leaving_out
    ]
    return small.createDataFrame(pa.Table.from_pylist(records, arrow_record_schema(headed=False)))


def rows_in_spark(frame: Any, recording: Recording, table: Any) -> list[dict[str, Any]]:
    kind = kind_of(table)
    decode, _ = kind.steps({i: recording.schema(i) for i in recording.schemas})
    with described("recorded"):
        return kind.refusing(decode)(frame).drop(FAULT).toArrow().to_pylist()


def same(column: Any, here: Any, there: Any) -> bool:
    """Whether a value of Spark's is one of Python's: text that stands for another type is read first."""
    if isinstance(there, str) and (isinstance(column.type, JSON) or not isinstance(here, str)):
        there = reader_for(column)(json.loads(there) if isinstance(column.type, ARRAY) else there)
    if here is None or there is None:
        return here is there
    if isinstance(here, dt.datetime):
        return bool(here.replace(tzinfo=None) == there.replace(tzinfo=None))
    if isinstance(here, float) and math.isnan(here):
        return math.isnan(there)
    return bool(here == there)


@pytest.mark.parametrize("written", ["json", "json-with-schemas", "avro"])  # each takes long
def test_every_value_is_in_spark_what_it_is_in_python(small: Any, written: str) -> None:
    together = [recording for recording in recordings().values() if written_as(recording) == written]
    every = model_of([case for case in CASES if case.name not in ("vbits", "raw", *ODD)])
    odd = model_of([case for case in CASES if case.name in ODD])
    raw_bytes = model_of([case for case in CASES if case.name == "raw"])
    as_bytes = [recording for recording in together if recording.encoding not in BYTES_AS_TEXT]
    for model, leaving_out, of in ((every, (), together), (odd, ("odd",), together), (raw_bytes, (), as_bytes)):
        found = values_in_spark(small, of, model, leaving_out)
        for recording in of:
            compared = 0
            for offset, expected in values_in_python(recording, model, leaving_out):
                row = found[recording.encoding, offset]
                differing = {c: (v, row[c]) for c, v in expected.items() if not same(model.c[c], v, row[c])}
                assert differing == {}, (recording.encoding, expected["row"])
                compared += 1
            assert compared == 2 * (len(ROWS) - len(leaving_out))


def values_in_spark(small: Any, together: list[Recording], model: SqlTable, leaving_out: tuple[str, ...]) -> Any:
    """The rows by encoding and offset: one plan for all recordings of a kind, whose topics are their names."""
    one = together[0]
    everything = replace(one, schemas={i: s for r in together for i, s in r.schemas.items()})
    frame = raw(small, one, EVERY, leaving_out=leaving_out, named=one.encoding)
    for recording in together[1:]:
        frame = frame.union(raw(small, recording, EVERY, leaving_out=leaving_out, named=recording.encoding))
    rows = rows_in_spark(frame, everything, captured(one, model, full_identity=True))
    return {(row[AT]["topic"], row["_offset"]): row for row in rows}


def values_in_python(recording: Recording, model: SqlTable, leaving_out: tuple[str, ...]) -> Iterator[Any]:
    decoder = ChangeDecoder(model, full_identity=True, schemas=recording.schema if recording.is_avro else None)
    for offset, (key, value) in enumerate(recording.topics[EVERY]):
        if ROWS[offset % len(ROWS)] not in leaving_out:
            yield offset, decoder.decode(key, value, offset=offset).after


@each_row(
    ("encoding", "column"),
    [
        ("plain", "free"),
        ("schemas-adaptive", "alarm"),
        ("avro-connect", "free"),
        (BYTES_AS_TEXT[0], "raw"),
    ],
)
def test_a_value_that_no_type_holds_is_refused_with_its_place(small: Any, encoding: str, column: str) -> None:
    recording = recordings()[encoding]
    table = captured(recording, model_of([case for case in CASES if case.name == column]))

    with pytest.raises(UndecodableRecord, match=f"column {column} has a value that does not fit"):
        rows_in_spark(raw(small, recording, EVERY), recording, table)


# Declared otherwise than the database has them: what the schema says is no value of the declared type.
MISMATCHES = [
    ("born", Text), ("born", Integer), ("born", Numeric(8, 2)), ("moment", Text), ("moment", BigInteger),
    ("amount", Text), ("amount", Integer), ("raw", Text), ("alarm", Text), ("alarm", Integer),
    ("span", BigInteger), ("name", Integer), ("name", LargeBinary), ("bits", BIT(4)), ("ints", ARRAY(Boolean)),
    ("name", Uuid), ("name", Boolean), ("moment", DateTime(timezone=True)), ("days", ARRAY(Integer)),
]  # fmt: skip


def mismatch(column: str, kind: Any) -> SqlTable:
    return SqlTable("every_type", MetaData(), Column("id", Integer, primary_key=True), Column(column, kind))


@each_row(("column", "kind"), MISMATCHES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_wrong_declaration_is_refused_in_python(column: str, kind: Any) -> None:
    recording = recordings()["schemas-adaptive"]

    with pytest.raises((UndecodableChange, UnsupportedEncoding)):
        ChangeDecoder(mismatch(column, kind), full_identity=True).decode(*recording.topics[EVERY][0], offset=0)


def test_a_wrong_declaration_has_no_value_in_spark(small: Any) -> None:
    """All in one plan: what `typed` cannot read is null, and a null that came as a value is refused (see above)."""
    recording = recordings()["schemas-adaptive"]
    every = captured(recording, model_of([case for case in CASES if case.name != "vbits"]), full_identity=True)
    encoding = parser_of(every, {})
    frame = raw(small, recording, EVERY).where("offset = 0").select(*encoding.parsed(every))
    wrong = []
    for number, (column, kind) in enumerate(MISMATCHES):
        declared = captured(recording, mismatch(column, kind), full_identity=True).columns[column]
        text = frame["_v"]["after"][column]
        wrong.append(typed(text, declared, encoding.form("v", column)).cast("string").alias(f"{column}_{number}"))
        wrong.append(text.alias(f"came_{number}"))
    (row,) = frame.select(*wrong).toArrow().to_pylist()

    assert {name: value for name, value in row.items() if not name.startswith("came_") and value is not None} == {}
    assert all(value is not None for name, value in row.items() if name.startswith("came_"))


def test_what_is_text_to_spark_is_the_same_text_in_every_encoding(small: Any) -> None:
    model = model_of(
        [case for case in CASES if case.name in ("alarm3", "alarmz", "uid", "days", "seens", "ints", "bits")]
    )
    rows = []
    for written in ("json", "json-with-schemas", "avro"):
        together = [recording for recording in recordings().values() if written_as(recording) == written]
        rows += [row for (_, offset), row in values_in_spark(small, together, model, ()).items() if offset == 0]

    assert len(rows) == len(recordings())
    assert {(row["alarm3"], row["alarmz"], row["days"], row["bits"]) for row in rows} == {
        ("03:04:05.678000", "01:04:05.678901Z", '["1980-02-29"]', "1000000011")
    }
    assert len({(row["uid"], row["seens"], row["ints"]) for row in rows}) == 1


LONG = {
    "notes": Text(), "raw": LargeBinary(), "doc": JSONB(), "words": ARRAY(Text), "numbers": ARRAY(Integer),
    "bigs": ARRAY(Integer), "uids": ARRAY(Uuid),
}  # fmt: skip
APART = SqlTable(
    "stored_apart",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("label", Text),
    *(Column(name, kind) for name, kind in LONG.items()),
)


@each_row("encoding", ["plain", "schemas-adaptive", "avro-isostring"])
def test_values_that_an_update_left_alone_are_those_before(small: Any, encoding: str) -> None:
    recording = recordings()[encoding]
    table = captured(recording, APART)
    frame = raw(small, recording, traps.APART)
    reduction = Reduction({i: recording.schema(i) for i in recording.schemas})

    first, both = (reduction.reduce(frame.where(f"offset < {end}"), table).collect()[0].asDict() for end in (1, 2))

    assert {row["_offset"] for row in rows_in_spark(frame, recording, table) if row["_missing_notes"]} == {1, 4}
    assert (first["label"], both["label"]) == ("first", "second")
    for column in LONG:
        assert both[column] == first[column] is not None
        assert both[f"_at_{column}"] == first["_pos"] < both["_pos"]


TRUNCATED = 9  # the offset of the record that says so


@each_row("encoding", ["plain", "schemas-microseconds", "avro-connect"])
def test_changes_are_ordered_as_python_orders_them(small: Any, encoding: str) -> None:
    recording = recordings()[encoding]
    decoder = ChangeDecoder(traps.MODEL, schemas=recording.schema if recording.is_avro else None)
    changes = [
        decoder.decode(key, value, offset=offset) for offset, (key, value) in enumerate(recording.topics[traps.WHOLE])
    ]
    here = [change for change in changes if change.op not in (Op.TOMBSTONE, Op.TRUNCATE)]
    frame = raw(small, recording, traps.WHOLE).where(f"offset <> {TRUNCATED} AND value IS NOT NULL")
    there = rows_in_spark(frame, recording, captured(recording, traps.MODEL))

    in_spark = sorted(there, key=lambda row: (row["_epoch"], row["_pos"], row["_offset"]))
    assert [row["_offset"] for row in in_spark] == [
        change.position.offset for change in sorted(here, key=lambda change: change.position)
    ]
    assert [row["_op"] for row in sorted(there, key=lambda row: row["_offset"])] == [change.op.value for change in here]


@each_row("encoding", ["plain", "avro-adaptive"])
def test_a_truncation_stops_what_cannot_follow_it(small: Any, encoding: str) -> None:
    recording = recordings()[encoding]

    with pytest.raises(UndecodableRecord, match="TRUNCATE"):
        rows_in_spark(raw(small, recording, traps.WHOLE), recording, captured(recording, traps.MODEL))


@each_row("encoding", ["plain", "avro-adaptive"])
def test_a_message_of_the_log_is_no_row(small: Any, encoding: str) -> None:
    recording = recordings()[encoding]
    among_rows = replace(recording, topics={"rows": recording.topics["message"]})

    with pytest.raises(UndecodableRecord, match="decode_message"):
        rows_in_spark(raw(small, among_rows, "rows"), among_rows, captured(among_rows, traps.MODEL))


def test_another_encoding_than_the_declared_one_is_refused(small: Any) -> None:
    recording = recordings()["schemas-adaptive"]
    table = Table.from_changelog(traps.MODEL, topic="recorded")

    with pytest.raises(UndecodableRecord):
        rows_in_spark(raw(small, recording, traps.WHOLE), recording, table)


def test_a_later_life_of_the_source_wins_over_greater_positions(small: Any) -> None:
    def change(epoch: int | None, lsn: int, name: str, snapshot: str) -> bytes:
        life = {} if epoch is None else {"factfold_epoch": str(epoch)}
        row = {"id": 1, "name": name, "amount": None, "notes": None}
        return json.dumps({"op": "r", "after": row, "source": {"lsn": lsn, "snapshot": snapshot}, **life}).encode()

    records = [(b'{"id": 1}', change(None, 900, "old", "false")), (b'{"id": 1}', change(1, 5, "new", "last"))]
    recording = Recording("plain", {"lives": records}, {})
    table = captured(recording, traps.MODEL)
    (row,) = Reduction({}).reduce(raw(small, recording, "lives"), table).collect()

    assert (row.name, row["_epoch"]) == ("new", 1)


@each_row(("file", "position"), [("mysql-bin.000003", 154), ("mysql-bin.000010", 4)])
def test_a_place_in_mysql_s_binary_log_is_the_number_that_python_makes_of_it(
    small: Any, file: str, position: int
) -> None:
    row = {"id": 1, "name": "a", "amount": None, "notes": None}
    source = {"connector": "mysql", "file": file, "pos": position, "row": 0, "snapshot": "false"}
    record = (b'{"id": 1}', json.dumps({"op": "c", "after": row, "source": source}).encode())
    recording = Recording("plain", {"binlog": [record]}, {})
    (there,) = rows_in_spark(raw(small, recording, "binlog"), recording, captured(recording, traps.MODEL))

    assert there["_pos"] == ChangeDecoder(traps.MODEL).decode(*record, offset=0).position.position
