"""What stands for a missing value in Spark is what stands for one in Python, for every type and encoding."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from pyspark.sql import functions as F
from sqlalchemy import JSON, Column, MetaData, Numeric, Text, Uuid
from sqlalchemy import Table as SqlTable

from cdc import ChangeDecoder
from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from eventstore.schema_registry import RegisteredSchema
from projections import Table
from projections.logs.port import arrow_record_schema
from projections.spark.changes.bit_fields import is_unavailable
from projections.spark.failures import FAULT
from projections.spark.kinds import Reduction, kind_of
from tests.rows import each_row
from tests.unit.cdc.missing_values import FORMS, OWN, TABLE

STRING = ["null", "string"]


def record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    described = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "connect.name": f"shop.{name}", "fields": described}


def array(of: str) -> list[Any]:
    return ["null", {"type": "array", "items": ["null", of]}]


COLUMNS = {
    "id": "string", "text": STRING, "raw": ["null", "bytes"], "doc": STRING, "texts": array("string"),
    "numbers": array("int"), "bigs": array("long"), "uids": array("string"),
    "words": ["null", {"type": "map", "values": STRING}],
}  # fmt: skip
SCHEMAS = {
    1: record("Key", {"id": "string"}),
    2: record(
        "Envelope",
        {
            "op": "string", "after": ["null", record("Value", COLUMNS)],
            "source": record("Source", {"lsn": "long", "snapshot": "string"}), FIELD_UNAVAILABLE: STRING,
        },
    ),
}  # fmt: skip


def registered(schema_id: int) -> RegisteredSchema:
    return RegisteredSchema(schema_id, SCHEMAS[schema_id]["name"], SCHEMAS[schema_id])


def changes() -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """A key, a row and the text that its record names: each form of our text, and of Debezium's, named and not."""
    for text, mark in ((OWN, OWN), (UNAVAILABLE, OWN), (UNAVAILABLE, None), (OWN, None), (UNAVAILABLE, UNAVAILABLE)):
        for column, (_, forms) in FORMS.items():
            if column != "doc" or text == (mark or UNAVAILABLE):
                yield f"{column} {text} {mark}", {column: forms(text)[0]}, mark
    yield UNAVAILABLE, {"texts": [UNAVAILABLE, "b"], "uids": [None]}, None
    yield OWN, {"texts": [OWN, "b"], "numbers": [1] * 60, "raw": ""}, OWN


def body(key: str, row: dict[str, Any], mark: str | None) -> dict[str, Any]:
    named = {} if mark is None else {FIELD_UNAVAILABLE: mark}
    return {"op": "u", "after": {"id": key, **row}, "source": {"lsn": 1, "snapshot": "false"}, **named}


def in_json(key: str, row: dict[str, Any], mark: str | None) -> tuple[bytes, bytes]:
    return json.dumps({"id": key}).encode(), json.dumps(body(key, {**dict.fromkeys(FORMS), **row}, mark)).encode()


def in_avro(key: str, row: dict[str, Any], mark: str | None) -> tuple[bytes, bytes]:
    raw = row.get("raw")
    sent = row if raw is None else {**row, "raw": base64.b64decode(raw)}
    return framed(1, {"id": key}), framed(2, body(key, {**dict.fromkeys(FORMS), **sent}, mark))


def framed(schema_id: int, content: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, SCHEMAS[schema_id], content)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


def raw(small: Any, records: list[tuple[bytes, bytes]]) -> Any:
    rows = [{"topic": "t", "partition": 0, "offset": o, "key": k, "value": v} for o, (k, v) in enumerate(records)]
    return small.createDataFrame(pa.Table.from_pylist(rows, arrow_record_schema(headed=False)))


@each_row(("encoding", "written"), [("json", in_json), ("avro", in_avro)])
def test_what_is_missing_and_what_arrives_is_the_same_in_python(small: Any, encoding: Any, written: Any) -> None:
    table = Table.from_changelog(TABLE, topic="t", encoding=encoding)
    records = [written(*change) for change in changes()]
    frame = raw(small, records)
    decode, _ = kind_of(table).steps({1: registered(1), 2: registered(2)})
    there = decode(frame).toArrow().to_pylist()
    decoder = ChangeDecoder(TABLE, schemas=registered if encoding == "avro" else None)
    for offset, (change, found) in enumerate(zip(changes(), there, strict=True)):
        here = decoder.decode(*records[offset], offset=offset)
        assert {c for c in FORMS if found[f"_missing_{c}"]} == set(here.unavailable), change
        assert found["id"] == here.key["id"]
        for column, value in (here.after or {}).items():
            assert as_python(column, found[column]) == value, (change, column)
    assert not any(row[FAULT] for row in there)
    assert sum(bool(c["_missing_text"]) for c in there) == 3


def as_python(column: str, value: Any) -> Any:
    if isinstance(value, str) and column in ("texts", "numbers", "bigs", "words"):
        return json.loads(value)
    return [item and UUID(item) for item in json.loads(value)] if value and column == "uids" else value


def test_the_value_before_stays_where_the_connector_s_text_stands(small: Any) -> None:
    table = Table.from_changelog(TABLE, topic="t")
    values = {column: forms(UNAVAILABLE)[0] for column, (_, forms) in FORMS.items()} | {"doc": "{}"}
    missing = {column: forms(OWN)[0] for column, (_, forms) in FORMS.items()}
    first, second = in_json("1", values, OWN), in_json("1", missing, OWN)
    later = (second[0], second[1].replace(b'"lsn": 1', b'"lsn": 2'))

    (row,) = Reduction({}).reduce(raw(small, [first, later]), table).toArrow().to_pylist()

    (alone,) = Reduction({}).reduce(raw(small, [first]), table).toArrow().to_pylist()
    assert {c: row[c] for c in FORMS} == {c: alone[c] for c in FORMS}
    assert row["text"] == UNAVAILABLE
    assert all(row[f"_at_{column}"] == 1 for column in FORMS)


@each_row("kind", [Text(), Numeric(12, 2), JSON(), Uuid()], ids=repr)
def test_a_text_is_compared_with_the_placeholder_alone(small: Any, kind: Any) -> None:
    model = SqlTable("t", MetaData(), Column("id", Text, primary_key=True), Column("it", kind))
    column = Table.from_changelog(model, topic="t").columns["it"]
    asked = str(is_unavailable(F.col("it"), column, F.col("mark")))

    assert asked == str(F.col("it") == F.col("mark"))
