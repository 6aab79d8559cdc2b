"""Debezium's change events to columns, inside the JVM: the rules of `cdc.change_event`, for JSON and for Avro.

Every column is read as text and turned into its declared type: a value that does not fit fails with its place, where a
typed ``from_json`` would quietly give null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from cdc.change_records import fields_of, without_logical_types
from cdc.rules import (
    BINLOG_BYTES,
    FIELD_AFTER,
    FIELD_BEFORE,
    FIELD_EPOCH,
    FIELD_UNAVAILABLE,
    OP_DELETE,
    OP_INSERT,
    OP_MESSAGE,
    OP_SNAPSHOT,
    OP_TRUNCATE,
    OP_UPDATE,
    STREAMED,
)
from cdc.semantic_types import Form
from eventstore.schema_registry import RegisteredSchema
from eventstore.serialization import FRAME
from projections.columns import ColumnType
from projections.spark.changes.absent import not_among
from projections.spark.changes.bit_fields import base64_of
from projections.spark.changes.semantic_types import FieldForm, is_value, typed
from projections.spark.changes.unavailable import is_unavailable, placeholder
from projections.spark.failures import fault, no_fault, refuse
from projections.tables import BELOW_STREAMED, CapturedTable, Table

if TYPE_CHECKING:
    from pyspark.sql import Column

APPLIED: Final = (OP_INSERT, OP_UPDATE, OP_SNAPSHOT, OP_DELETE)
_SOURCE: Final = {"lsn": "bigint", "snapshot": "string", "sequence": "string", "file": "string", "pos": "bigint",
                  "ts_ms": "bigint"}  # fmt: skip


class Encoding(Protocol):
    """How a topic's records are written: what makes `k` (the key), `v` (the change event) and forms of them.

    `v_malformed` tells of a record that has something else where an object or a number must stand.
    """

    def parsed(self, table: Table, times: Sequence[str]) -> list[Column | str]:
        """Columns for a projection of their own; ``times`` are further numbers of the change event's source."""

    def form(self, side: str, column: str) -> FieldForm | None:
        """What the record's schema says of a column, of the key's (`k`) or of the row's (`v`)."""

    def absent(self, names: Sequence[str]) -> Column:
        """Over parsed records with a row: those of the columns that it does not have, with commas between them."""

    def unreadable(self) -> Column:
        """Over raw records: why `parsed` would fail, as a fault; null where it would not."""


class PlainJson:
    """JSON alone: values say by themselves what they are."""

    def parsed(self, table: Table, times: Sequence[str] = ()) -> list[Column | str]:
        """See `Encoding`."""
        value = _json("value", f"struct<{_event(table, times)}>")
        return [
            _json("key", f"struct<{_row(table.key)}>")[_OBJECT].alias("k"),
            value[_OBJECT].alias("v"),
            value[_MALFORMED].isNotNull().alias("v_malformed"),
            "value",
        ]

    def form(self, side: str, column: str) -> FieldForm | None:
        """None: there is no schema."""
        return None

    def absent(self, names: Sequence[str]) -> Column:
        """Those that are no key of the row's object, which is parsed once more for it."""
        from pyspark.sql import functions as F

        row = F.get_json_object(F.col("value").cast("string"), f"$.{FIELD_AFTER}")
        return not_among(names, F.json_object_keys(row))

    def unreadable(self) -> Column:
        """Nothing: what is no JSON is parsed to null."""
        return no_fault()


class JsonWithSchemas:
    """JSON with its schema in each record, as Connect's converter writes it with schemas.enable=true."""

    def parsed(self, table: Table, times: Sequence[str] = ()) -> list[Column | str]:
        """See `Encoding`."""
        from pyspark.sql import functions as F

        key = _json("key", _with_schema(_row(table.key), _FIELDS))[_OBJECT]
        parts = f"fields: array<struct<field: string, {_FIELDS}>>"
        whole = _json("value", _with_schema(_event(table, times), parts))
        value = whole[_OBJECT]
        of_after = F.filter(value["schema"]["fields"], lambda part: part["field"] == "after")
        return [
            key["payload"].alias("k"),
            key["schema"]["fields"].alias("k_fields"),
            value["payload"].alias("v"),
            whole[_MALFORMED].isNotNull().alias("v_malformed"),
            F.get(of_after, F.lit(0))["fields"].alias("v_fields"),
        ]

    def form(self, side: str, column: str) -> FieldForm | None:
        """The form in the record's own schema."""
        from pyspark.sql import functions as F

        fields = F.col(f"{side}_fields")
        found = F.get(F.filter(fields, lambda field: field["field"] == column), F.lit(0))
        of_items = found["items"]
        items = FieldForm(of_items["type"], of_items["name"], of_items["parameters"]["scale"])
        return FieldForm(found["type"], found["name"], found["parameters"]["scale"], items)

    def absent(self, names: Sequence[str]) -> Column:
        """Those that the record's own schema does not describe."""
        from pyspark.sql import functions as F

        return not_among(names, F.coalesce(F.col("v_fields")["field"], F.array().cast("array<string>")))

    def unreadable(self) -> Column:
        """Nothing: what is no JSON is parsed to null."""
        return no_fault()


_ITEMS = "type: string, name: string, parameters: struct<scale: string>"
_FIELDS = f"fields: array<struct<field: string, {_ITEMS}, items: struct<{_ITEMS}>>>"


_ENVELOPE: Final = frozenset({"op", "source"})


class Avro:
    """Avro in Confluent framing, as Connect's converters write it; the writers' schemas by their ids."""

    def __init__(self, schemas: Mapping[int, RegisteredSchema]) -> None:
        # Connect's converters name what they wrote; others in the registry are of events.
        of_connect = {id_: found.schema for id_, found in schemas.items() if "connect.name" in found.schema}
        self._schemas = {id_: without_logical_types(schema) for id_, schema in of_connect.items()}
        self._forms = {id_: Form.of_avro(schema) for id_, schema in self._schemas.items()}

    def parsed(self, table: Table, times: Sequence[str] = ()) -> list[Column | str]:
        """See `Encoding`."""
        from pyspark.sql import functions as F

        key = self._decoded("key", lambda row, form: _struct(row, fields_of(form), table.key))
        value = self._decoded("value", lambda event, form: _avro_event(event, form, table, times))
        ids = [_id("key").alias("k_id"), _id("value").alias("v_id")]
        return [key.alias("k"), value.alias("v"), F.lit(False).alias("v_malformed"), *ids]

    def _decoded(self, side: str, content: Callable[[Column, Form], Column]) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        body = F.expr(f"substring({side}, {FRAME + 1})")
        chosen = F.when(F.col(side).isNull(), None)
        for id_, form in self._wanted(side).items():
            decoded = from_avro(body, json.dumps(self._schemas[id_]), {"mode": "PERMISSIVE"})
            chosen = chosen.when(_id(side) == id_, content(decoded, form))
        unframed = F.when(_id(side).isNull(), refuse("not_avro", _head(side)))
        return chosen.otherwise(unframed.otherwise(refuse("unknown_schema", _id(side).cast("string"))))

    def _wanted(self, side: str) -> dict[int, Form]:
        """The schemas that a key's, or a change event's, may be."""
        return {
            i: form for i, form in self._forms.items() if (_ENVELOPE <= fields_of(form).keys()) == (side == "value")
        }

    def unreadable(self) -> Column:
        """Where key or value has no frame, or the id of no schema that such a one may have."""
        from pyspark.sql import functions as F

        def of(side: str) -> Column:
            known = _id(side).isin(*self._wanted(side))
            unknown = F.when(_id(side).isNull(), fault("not_avro", _head(side))).otherwise(
                fault("unknown_schema", _id(side).cast("string"))
            )
            return F.when(F.col(side).isNotNull() & ~F.coalesce(known, F.lit(False)), unknown)

        return F.coalesce(of("key"), of("value"))

    def form(self, side: str, column: str) -> FieldForm | None:
        """The form in the schema of the record's id."""
        forms = {id_: self._form_of(form, side, column) for id_, form in self._forms.items()}
        present = {id_: FieldForm.fixed(form) for id_, form in forms.items() if form is not None}
        return _by_id(f"{side}_id", present)

    def absent(self, names: Sequence[str]) -> Column:
        """Those that the writer's schema does not have."""
        from pyspark.sql import functions as F

        found = F.when(F.lit(False), "")
        for id_, form in self._wanted("value").items():
            fields = fields_of(form, FIELD_AFTER)
            if lacking := [name for name in names if name not in fields]:
                found = found.when(F.col("v_id") == id_, ",".join(lacking))
        return found

    def _form_of(self, form: Form, side: str, column: str) -> Form | None:
        return fields_of(form, "after" if side == "v" else None).get(column)


def encoding_of(table: CapturedTable, schemas: Mapping[int, RegisteredSchema]) -> Encoding:
    """How a table's records are written; ``schemas`` are those of Avro's writers."""
    if table.encoding == "avro":
        return Avro(schemas)
    return PlainJson() if table.encoding == "json" else JsonWithSchemas()


def _by_id(column: str, forms: Mapping[int, FieldForm]) -> FieldForm:
    from pyspark.sql import functions as F

    def chosen(part: Callable[[FieldForm], Column]) -> Column:
        found = F.when(F.lit(False), F.lit(None).cast("string"))
        for id_, form in forms.items():
            found = found.when(F.col(column) == id_, part(form))
        return found

    items = {id_: form.items for id_, form in forms.items() if form.items is not None}
    parts = (chosen(lambda f: f.type), chosen(lambda f: f.name), chosen(lambda f: f.scale))
    return FieldForm(*parts, _by_id(column, items) if items else None)


def _head(side: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.hex(F.expr(f"substring({side}, 1, {FRAME})")), F.lit("nothing"))


def _id(side: str) -> Column:
    from pyspark.sql import functions as F

    framed = F.expr(f"substring({side}, 1, 1) = X'00'")
    return F.when(framed, F.conv(F.expr(f"hex(substring({side}, 2, {FRAME - 1}))"), 16, 10).cast("bigint"))


def _avro_event(event: Column, form: Form, table: Table, times: Sequence[str]) -> Column:
    """A decoded envelope in the shape that JSON is parsed into."""
    from pyspark.sql import functions as F

    fields = fields_of(form)
    source_form = fields_of(form, "source")
    nothing = F.lit(None).cast(f"struct<{_row(table.columns)}>")
    after = nothing  # of a message of the log
    if "after" in fields:
        row = _struct(event["after"], fields_of(form, "after"), table.columns)
        after = F.when(event["after"].isNotNull(), row).otherwise(nothing)
    source = F.struct(
        *(
            (event["source"][name] if name in source_form else F.lit(None)).cast(kind).alias(name)
            for name, kind in _source(times).items()
        )
    )
    told = (
        (event[name] if name in fields else F.lit(None)).cast("string").alias(name)
        for name in (FIELD_EPOCH, FIELD_UNAVAILABLE)
    )
    whole = F.struct(event["op"].alias("op"), after.alias("after"), source.alias("source"), *told)
    return F.when(event["op"].isNotNull(), whole)


def _struct(row: Column, fields: Mapping[str, Form], columns: Iterable[str]) -> Column:
    from pyspark.sql import functions as F

    texts = (_text_of(row[c], fields[c]) if c in fields else F.lit(None).cast("string") for c in columns)
    return F.struct(*(text.alias(c) for text, c in zip(texts, columns, strict=True)))


def _text_of(value: Column, form: Form) -> Column:
    """An Avro value as JSON would have it: base64 of bytes, JSON of what has parts."""
    from pyspark.sql import functions as F

    if form.type in ("bytes", "fixed"):
        return base64_of(value)
    return F.to_json(value) if form.type in ("array", "map", "record") else value.cast("string")


# The names of what `_json` gives.
_OBJECT, _MALFORMED = "object", "malformed"


def _json(side: str, shape: str) -> Column:
    """A record's object, and its text where that, or a part of it, is not of this shape.

    Parsed as the field of an object: what stands behind the record's own would be passed over.
    """
    from pyspark.sql import functions as F

    text = F.try_validate_utf8(F.col(side).cast("string"))
    whole = F.concat(F.lit(f'{{"{_OBJECT}":'), text, F.lit("}"))
    options = {"columnNameOfCorruptRecord": _MALFORMED, "allowSingleQuotes": "false"}
    return F.from_json(whole, f"struct<{_OBJECT}: {shape}, {_MALFORMED}: string>", options)


def _with_schema(payload: str, schema: str) -> str:
    return f"struct<payload: struct<{payload}>, schema: struct<{schema}>>"


def _row(columns: Iterable[str]) -> str:
    return ", ".join(f"`{c}`: string" for c in columns)


def _source(times: Sequence[str]) -> dict[str, str]:
    return {**_SOURCE, **dict.fromkeys(times, "bigint")}


def _event(table: Table, times: Sequence[str]) -> str:
    source = ", ".join(f"{name}: {kind}" for name, kind in _source(times).items())
    told = f"{FIELD_EPOCH}: string, {FIELD_UNAVAILABLE}: string"
    # Of the row before nothing is read but that it is one.
    rows = f"{FIELD_AFTER}: struct<{_row(table.columns)}>, {FIELD_BEFORE}: struct<{_row(table.key)}>"
    return f"op: string, {rows}, source: struct<{source}>, {told}"


def parsed_columns(table: Table, encoding: Encoding, *, times: Sequence[str] = ()) -> list[Column | str]:
    """The first projection over raw records; its columns are for `typed_columns` alone."""
    from pyspark.sql import functions as F

    place = [F.col("topic"), F.col("partition"), F.col("offset")]
    return [*place, F.col("value").isNull().alias("_tombstone"), *encoding.parsed(table, times)]


def typed_columns(table: Table, encoding: Encoding, known: Sequence[str]) -> list[Column]:
    """The table's columns in their types, whether those ``known`` to vary are unavailable, operation and position."""
    from pyspark.sql import functions as F

    after, types, mark = F.col("v.after"), table.columns, placeholder()
    return [
        *(_required(F.col("k")[c], types[c], c, encoding.form("k", c)).alias(c) for c in table.key),
        *(_cast(after[c], types[c], c, encoding.form("v", c)).alias(c) for c in table.payload),
        *(F.coalesce(is_unavailable(after[c], types[c], mark), F.lit(False)).alias(missing(c)) for c in known),
        F.col("_tombstone"),
        _operation().alias("_op"),
        _epoch().alias("_epoch"),
        _position().alias("_pos"),
        F.col("offset").alias("_offset"),
    ]


def missing(column: str) -> str:
    """The column that tells whether a value was unavailable."""
    return f"_missing_{column}"


def _operation() -> Column:
    from pyspark.sql import functions as F

    known = F.when(is_change(), F.col("v.op"))
    return F.when(~F.col("_tombstone"), F.coalesce(known, no_row(refuse, otherwise=refuse("bad_json"))))


def is_change() -> Column:
    """Whether a record is a change of one row: with the row after it, and without where it was deleted."""
    from pyspark.sql import functions as F

    op, leaves_none = F.col("v.op"), F.col("v")[FIELD_AFTER].isNull()
    fits = op.isin(*APPLIED) & ((op == OP_DELETE) == leaves_none) & ~F.col("v_malformed")
    return F.coalesce(fits, F.lit(False))


def _epoch() -> Column:
    from pyspark.sql import functions as F

    said = F.col("v")[FIELD_EPOCH]
    epoch = F.coalesce(said.try_cast("bigint"), F.when(said.isNotNull(), refuse("bad_json").cast("bigint")), F.lit(0))
    return F.when(~F.col("_tombstone"), epoch)


def _position() -> Column:
    """The place in the source; a snapshot row's is moved below every streamed one's.

    A transaction that was open while the slot was made is streamed with lower LSNs than the snapshot's, and is newer.
    """
    from pyspark.sql import functions as F

    streamed = F.when(~F.col("_tombstone"), F.coalesce(*places_in_source(), refuse("bad_json").cast("bigint")))
    return F.when(_is_streamed(), streamed).otherwise(streamed - F.lit(BELOW_STREAMED))


def _is_streamed() -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.col("v.source")["snapshot"], F.lit(STREAMED)) == STREAMED


def places_in_source() -> list[Column]:
    """Where a change stands in its source, the first that is not null."""
    from pyspark.sql import functions as F

    source = F.col("v.source")
    file = F.regexp_extract(source["file"], r"\.(\d+)$", 1).try_cast("bigint")
    binlog = F.shiftleft(file, BINLOG_BYTES) + source["pos"]
    # Rows of a snapshot beside PostgreSQL's stream have no LSN, but that of the stream when they were read.
    sequence = F.from_json(source["sequence"], "array<string>")
    seen = F.when(F.size(sequence) == F.lit(2), F.coalesce(F.get(sequence, F.lit(1)), F.lit("0")).try_cast("bigint"))
    return [source["lsn"], binlog, F.when(~_is_streamed(), seen)]


def _required(text: Column, column: ColumnType, name: str, form: FieldForm | None) -> Column:
    from pyspark.sql import functions as F

    refused = no_row(refuse, otherwise=refuse("bad_value", F.lit(name)))
    return F.coalesce(typed(text, column, form), refused.cast(column.ddl))


def no_row(told: Callable[[str], Column], *, otherwise: Column) -> Column:
    """What is said of a record that is no change of a row: the two that are told apart have no key, or another one."""
    from pyspark.sql import functions as F

    op = F.col("v.op")
    return F.when(op == OP_TRUNCATE, told("truncated")).when(op == OP_MESSAGE, told("message")).otherwise(otherwise)


def _cast(text: Column, column: ColumnType, name: str, form: FieldForm | None) -> Column:
    """The value, null where it is null or unavailable; one that does not fit fails the query.

    ``coalesce`` makes the value once; a test of it before it would make it twice.
    """
    from pyspark.sql import functions as F

    mark = placeholder()
    wrong = is_sent(text, column, mark)
    return F.coalesce(typed(text, column, form, mark), F.when(wrong, refuse("bad_value", F.lit(name)).cast(column.ddl)))


def is_sent(text: Column, column: ColumnType, mark: Column) -> Column:
    """Whether there is a value: neither null nor unavailable."""
    sent = text.isNotNull() & is_value(text, column)
    return sent & ~is_unavailable(text, column, mark) if column.varies_in_length else sent
