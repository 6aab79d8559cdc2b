"""What changes of a table's schema leave in its topic, in each encoding: records that a declared model does not fit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import sqlalchemy as sa

from eventstore.schema_registry import RegisteredSchema

ITEMS = sa.Table(
    "items", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
    sa.Column("tier", sa.Text), sa.Column("rate", sa.Numeric(8, 2)), schema="public",
)  # fmt: skip
Row = Mapping[str, Any]
Record = tuple[bytes, bytes]


@dataclass(frozen=True)
class Change:
    """A change of one row, without its key; ``lacks`` are the columns of the model that a reader misses in it."""

    row: Row | None
    lsn: int
    snapshot: str = "false"
    lacks: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        return "d" if self.row is None else "u" if self.snapshot == "false" else "r"


OLD = {"name": "Ann", "rate": "1.50"}
WHOLE = {"name": "Ann", "tier": "gold", "rate": "1.50"}
TIER = ("tier",)

# By what happened: the records of one key in their order, and the row that stands for it, None for none.
CASES: dict[str, tuple[list[Change], Row | None]] = {
    "a NULL is sent": ([Change(WHOLE | {"tier": None}, 1)], WHOLE | {"tier": None}),
    "ADD COLUMN that is not declared": ([Change(WHOLE | {"more": "x"}, 1)], WHOLE),
    "ADD COLUMN, an older record": ([Change(OLD, 1, lacks=TIER)], None),
    "ADD COLUMN, an older row of a snapshot": ([Change(OLD, 1, "true", TIER)], None),
    "DROP COLUMN": ([Change(WHOLE, 1), Change(OLD, 2, lacks=TIER)], WHOLE),
    "DROP COLUMN of two": ([Change({"name": "Ann"}, 1, lacks=("tier", "rate"))], None),
    "DROP COLUMN, behind rows that were read": (
        [Change(WHOLE, 5, "incremental"), Change(OLD, 2, lacks=TIER), Change(OLD, 3, lacks=TIER)], WHOLE,
    ),
    "RENAME COLUMN": ([Change(WHOLE, 1), Change(OLD | {"grade": "gold"}, 2, lacks=TIER)], WHOLE),
    "a later change has the column": ([Change(OLD, 1, lacks=TIER), Change(WHOLE, 2)], WHOLE),
    "a later change comes again in between": (
        [Change(OLD, 1, lacks=TIER), Change(WHOLE, 2), Change(OLD, 1, lacks=TIER)], WHOLE,
    ),
    "the row is deleted later": ([Change(OLD, 1, lacks=TIER), Change(None, 2)], None),
    "rows are read again": (
        [Change(OLD, 1, lacks=TIER), Change(OLD | {"name": "Bob"}, 2, lacks=TIER),
         Change(WHOLE | {"name": "Bob"}, 2, "incremental")], WHOLE | {"name": "Bob"},
    ),
    "rows are read again, and then changed": (
        [Change(OLD, 1, lacks=TIER), Change(WHOLE, 1, "true"), Change(WHOLE | {"tier": "silver"}, 3)],
        WHOLE | {"tier": "silver"},
    ),
    "dropped, added and read again": (
        [Change(WHOLE, 1), Change(OLD, 2, lacks=TIER), Change(WHOLE | {"tier": "new"}, 3, "incremental")],
        WHOLE | {"tier": "new"},
    ),
}  # fmt: skip
# Of each key, the numbers of the records that no other one replaces.
BAD = {
    "ADD COLUMN, an older record": [0], "ADD COLUMN, an older row of a snapshot": [0], "DROP COLUMN": [1],
    "DROP COLUMN of two": [0], "DROP COLUMN, behind rows that were read": [1, 2], "RENAME COLUMN": [1],
}  # fmt: skip
SCHEMAS: dict[int, dict[str, Any]] = {}


def envelope(change: Change, key: int) -> dict[str, Any]:
    """The change event; a deleted row leaves none."""
    after = None if change.row is None else {"id": key, **change.row}
    source = {"lsn": change.lsn, "snapshot": change.snapshot, "sequence": json.dumps([None, str(change.lsn)])}
    return {"op": change.op, "after": after, "source": source}


def in_json(change: Change, key: int) -> Record:
    """JSON alone."""
    return _json({"id": key}), _json(envelope(change, key))


def with_schemas(change: Change, key: int) -> Record:
    """JSON with the schema of the table as it is at the change."""
    id_ = {"field": "id", "type": "int32"}
    fields = [id_, *({"field": name, "type": "string"} for name in change.row or WHOLE)]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    of_key = {"schema": {"type": "struct", "fields": [id_]}, "payload": {"id": key}}
    return _json(of_key), _json({"schema": schema, "payload": envelope(change, key)})


def in_avro(change: Change, key: int) -> Record:
    """Avro by the schema of the table as it is at the change."""
    columns = {"id": "int", **{name: ["null", "string"] for name in change.row or WHOLE}}
    source = _record("Source", lsn="long", snapshot="string", sequence="string")
    of_value = _record("Envelope", op="string", after=["null", _record("Value", **columns)], source=source)
    return framed(_record("Key", id="int"), {"id": key}), framed(of_value, envelope(change, key))


def flattened(change: Change, key: int) -> Record:
    """The row in place of the change event, as `Flatten` leaves it."""
    told = {"__op": change.op, "__lsn": change.lsn}
    return _json({"id": key}), _json({"id": key, **(change.row or {}), **told})


WRITTEN: dict[str, Callable[[Change, int], Record]] = {
    "json": in_json, "json-with-schemas": with_schemas, "avro": in_avro,
}  # fmt: skip


def registered(schema_id: int) -> RegisteredSchema:
    """A registry's answer, for what has been written."""
    return RegisteredSchema(schema_id, SCHEMAS[schema_id].get("name", ""), SCHEMAS[schema_id])


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    described = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "connect.name": f"shop.{name}", "fields": described}


def framed(schema: dict[str, Any], content: Any) -> bytes:
    """A record in Confluent framing, its schema with an id of its own in `SCHEMAS`."""
    known = next((id_ for id_, written in SCHEMAS.items() if written == schema), len(SCHEMAS) + 1)
    SCHEMAS[known] = schema
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, content)
    return b"\0" + known.to_bytes(4, "big") + body.getvalue()
