"""How the records of captured tables are written, and what makes columns of them: JSON, JSON with schemas, Avro."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc.changes.change_records import avro_name, fields_of, without_logical_types
from cdc.changes.rules import FIELD_AFTER, FIELD_BEFORE, FIELD_EPOCH, FIELD_UNAVAILABLE
from cdc.changes.semantic_types import Form
from eventstore.fields.serialization import FRAME
from eventstore.schema_registry import RegisteredSchema
from projections.declaring.tables import CapturedTable, Table
from projections.spark.changes.bit_fields import base64_of
from projections.spark.changes.semantic_types import FieldForm
from projections.spark.failures import fault, no_fault

Fields = Mapping[str, str]  # names in records, by those of the table's columns
NO_FIELDS: Final[Fields] = {}
_SOURCE: Final = {"lsn": "bigint", "snapshot": "string", "sequence": "string", "file": "string", "pos": "bigint",
                  "ts_ms": "bigint"}  # fmt: skip
_ITEMS = "type: string, name: string, parameters: struct<scale: string>"
_FIELDS = f"fields: array<struct<field: string, {_ITEMS}, items: struct<{_ITEMS}>>>"
_ENVELOPE: Final = frozenset({"op", "source"})


class RecordParser(Protocol):
    """How a topic's records are written: what makes `_k` (the key), `_v` (the change event) and forms of them.

    `_v_malformed` tells of a record that has something else where an object or a number must stand.
    """

    def parsed(self, table: Table, times: Sequence[str]) -> list[Column | str]:
        """Columns for a projection of their own; ``times`` are further numbers of the change event's source."""

    def form(self, side: str, column: str) -> FieldForm | None:
        """What the record's schema says of a column, of the key's (`k`) or of the row's (`v`)."""

    def absent(self, names: Sequence[str]) -> Column:
        """Over parsed records with a row: those of the columns that it does not have, with commas between them."""

    def unreadable(self) -> Column:
        """Over raw records: why `parsed` has only nulls, as a fault; null where it could read the record."""


class _OfJson:
    """What is the same of records in JSON. ``fields`` are the names that records have for columns."""

    def __init__(self, fields: Fields = NO_FIELDS) -> None:
        self._fields = fields

    def unreadable(self) -> Column:
        """Nothing: what is no JSON is parsed to null."""
        return no_fault()


class JsonParser(_OfJson):
    """JSON alone: values say by themselves what they are."""

    def parsed(self, table: Table, times: Sequence[str] = ()) -> list[Column | str]:
        """See `RecordParser`."""
        value = _json("value", lambda fields: f"struct<{_event(table, times, fields)}>", self._fields)
        key = _json("key", lambda fields: f"struct<{_row(table.key, fields)}>", self._fields)
        return [
            key[_OBJECT].alias("_k"),
            value[_OBJECT].alias("_v"),
            value[_MALFORMED].isNotNull().alias("_v_malformed"),
            "value",
        ]

    def form(self, side: str, column: str) -> FieldForm | None:
        """None: there is no schema."""
        return None

    def absent(self, names: Sequence[str]) -> Column:
        """Those that are no key of the row's object, which is parsed once more for it."""
        row = F.get_json_object(F.col("value").cast("string"), f"$.{FIELD_AFTER}")
        return _not_among(names, F.json_object_keys(row), self._fields)


class SchemaJsonParser(_OfJson):
    """JSON with its schema in each record, as Connect's converter writes it with schemas.enable=true."""

    def parsed(self, table: Table, times: Sequence[str] = ()) -> list[Column | str]:
        """See `RecordParser`."""
        key = _json("key", lambda fields: _with_schema(_row(table.key, fields), _FIELDS), self._fields)[_OBJECT]
        parts = f"fields: array<struct<field: string, {_FIELDS}>>"
        whole = _json("value", lambda fields: _with_schema(_event(table, times, fields), parts), self._fields)
        value = whole[_OBJECT]
        of_after = F.filter(value["schema"]["fields"], lambda part: part["field"] == "after")
        return [
            key["payload"].alias("_k"),
            key["schema"]["fields"].alias("_k_fields"),
            value["payload"].alias("_v"),
            whole[_MALFORMED].isNotNull().alias("_v_malformed"),
            F.get(of_after, F.lit(0))["fields"].alias("_v_fields"),
        ]

    def form(self, side: str, column: str) -> FieldForm | None:
        """The form in the record's own schema."""
        fields, name = F.col(f"_{side}_fields"), self._fields.get(column, column)
        own = F.get(F.filter(fields, lambda field: field["field"] == name), F.lit(0))
        of_items = own["items"]
        items = FieldForm(of_items["type"], of_items["name"], of_items["parameters"]["scale"])
        return FieldForm(own["type"], own["name"], own["parameters"]["scale"], items)

    def absent(self, names: Sequence[str]) -> Column:
        """Those that the record's own schema does not describe."""
        there = F.coalesce(F.col("_v_fields")["field"], F.array().cast("array<string>"))
        return _not_among(names, there, self._fields)


class AvroParser:
    """Avro in Confluent framing, as Connect's converters write it; the writers' schemas by their ids."""

    def __init__(self, schemas: Mapping[int, RegisteredSchema], fields: Fields = NO_FIELDS) -> None:
        self._fields = {column: avro_name(field) for column, field in fields.items()}
        # Connect's converters name what they wrote; others in the registry are of events.
        of_connect = {
            id_: registered.schema for id_, registered in schemas.items() if "connect.name" in registered.schema
        }
        self._schemas = {id_: without_logical_types(schema) for id_, schema in of_connect.items()}
        self._forms = {id_: Form.of_avro(schema) for id_, schema in self._schemas.items()}

    def parsed(self, table: Table, times: Sequence[str] = ()) -> list[Column | str]:
        """See `RecordParser`."""
        key = self._decoded("key", lambda row, form: _struct(row, fields_of(form), self._named(table.key)))
        row = self._named(table.columns)
        value = self._decoded("value", lambda event, form: _avro_event(event, form, row, times))
        ids = [_id("key").alias("_k_id"), _id("value").alias("_v_id")]
        return [key.alias("_k"), value.alias("_v"), F.lit(False).alias("_v_malformed"), *ids]

    def _decoded(self, side: str, content: Callable[[Column, Form], Column]) -> Column:
        from pyspark.sql.avro.functions import from_avro

        body = F.expr(f"substring({side}, {FRAME + 1})")
        chosen = F.when(F.col(side).isNull(), None)
        for id_, form in self._possible_forms(side).items():
            decoded = from_avro(body, json.dumps(self._schemas[id_]), {"mode": "PERMISSIVE"})
            chosen = chosen.when(_id(side) == id_, content(decoded, form))
        return chosen

    def _possible_forms(self, side: str) -> dict[int, Form]:
        """The schemas that a key's, or a change event's, may be."""
        return {
            i: form for i, form in self._forms.items() if (_ENVELOPE <= fields_of(form).keys()) == (side == "value")
        }

    def unreadable(self) -> Column:
        """Where key or value has no frame, or the id of no schema that such a one may have."""

        def of(side: str) -> Column:
            known = _id(side).isin(*self._possible_forms(side))
            unknown = F.when(_id(side).isNull(), fault("not_avro", _head(side))).otherwise(
                fault("unknown_schema", _id(side).cast("string"))
            )
            return F.when(F.col(side).isNotNull() & ~F.coalesce(known, F.lit(False)), unknown)

        return F.coalesce(of("key"), of("value"))

    def form(self, side: str, column: str) -> FieldForm | None:
        """The form in the schema of the record's id."""
        forms = {id_: self._form_of(form, side, column) for id_, form in self._forms.items()}
        present = {id_: FieldForm.fixed(form) for id_, form in forms.items() if form is not None}
        return _by_id(f"_{side}_id", present)

    def absent(self, names: Sequence[str]) -> Column:
        """Those that the writer's schema does not have."""
        choice = F.when(F.lit(False), "")
        for id_, form in self._possible_forms("value").items():
            fields = fields_of(form, FIELD_AFTER)
            if lacking := [name for name, field in self._named(names).items() if field not in fields]:
                choice = choice.when(F.col("_v_id") == id_, ",".join(lacking))
        return choice

    def _form_of(self, form: Form, side: str, column: str) -> Form | None:
        return fields_of(form, "after" if side == "v" else None).get(self._fields.get(column, column))

    def _named(self, columns: Iterable[str]) -> dict[str, str]:
        """The names of columns in records, by the columns."""
        return {column: self._fields.get(column, column) for column in columns}


def parser_of(table: CapturedTable, schemas: Mapping[int, RegisteredSchema]) -> RecordParser:
    """How a table's records are written; ``schemas`` are those of Avro's writers."""
    if table.encoding == "avro":
        return AvroParser(schemas, table.record_names)
    return JsonParser(table.record_names) if table.encoding == "json" else SchemaJsonParser(table.record_names)


def _by_id(column: str, forms: Mapping[int, FieldForm]) -> FieldForm:
    def chosen(part: Callable[[FieldForm], Column]) -> Column:
        choice = F.when(F.lit(False), F.lit(None).cast("string"))
        for id_, form in forms.items():
            choice = choice.when(F.col(column) == id_, part(form))
        return choice

    items = {id_: form.items for id_, form in forms.items() if form.items is not None}
    parts = (chosen(lambda f: f.type), chosen(lambda f: f.name), chosen(lambda f: f.scale))
    return FieldForm(*parts, _by_id(column, items) if items else None)


def _head(side: str) -> Column:
    return F.coalesce(F.hex(F.expr(f"substring({side}, 1, {FRAME})")), F.lit("nothing"))


def _id(side: str) -> Column:
    framed = F.expr(f"substring({side}, 1, 1) = X'00'")
    return F.when(framed, F.conv(F.expr(f"hex(substring({side}, 2, {FRAME - 1}))"), 16, 10).cast("bigint"))


def _avro_event(event: Column, form: Form, columns: Fields, times: Sequence[str]) -> Column:
    """A decoded envelope in the shape that JSON is parsed into."""
    fields = fields_of(form)
    source_form = fields_of(form, "source")
    nothing = F.lit(None).cast(f"struct<{_row(columns)}>")
    after = nothing  # of a message of the log
    if "after" in fields:
        row = _struct(event["after"], fields_of(form, "after"), columns)
        after = F.when(event["after"].isNotNull(), row).otherwise(nothing)
    source = F.struct(
        *(
            (event["source"][name] if name in source_form else F.lit(None)).cast(kind).alias(name)
            for name, kind in _source(times).items()
        )
    )
    added = (
        (event[name] if name in fields else F.lit(None)).cast("string").alias(name)
        for name in (FIELD_EPOCH, FIELD_UNAVAILABLE)
    )
    whole = F.struct(event["op"].alias("op"), after.alias("after"), source.alias("source"), *added)
    return F.when(event["op"].isNotNull(), whole)


def _struct(row: Column, forms: Mapping[str, Form], columns: Fields) -> Column:
    """The columns' texts; ``columns`` has the field of each."""
    texts = {c: _text_of(row[f], forms[f]) if f in forms else F.lit(None).cast("string") for c, f in columns.items()}
    return F.struct(*(text.alias(column) for column, text in texts.items()))


def _text_of(value: Column, form: Form) -> Column:
    """An Avro value as JSON would have it: base64 of bytes, JSON of what has parts."""
    if form.type in ("bytes", "fixed"):
        return base64_of(value)
    return F.to_json(value) if form.type in ("array", "map", "record") else value.cast("string")


def _not_among(names: Sequence[str], there: Column, fields: Mapping[str, str]) -> Column:
    """The names that an array does not have, as `RecordParser.absent` does; ``fields`` are those it would have."""

    def array(texts: Iterable[str]) -> Column:
        return F.array(*map(F.lit, texts))

    lacking = F.array_except(array(fields.get(name, name) for name in names), there)
    if fields:
        columns = F.map_from_arrays(array(fields.get(name, name) for name in names), array(names))
        lacking = F.transform(lacking, lambda field: columns[field])
    return F.array_join(lacking, ",")


# The names of what `_json` gives.
_OBJECT, _MALFORMED = "object", "malformed"


def _json(side: str, shape: Callable[[Fields], str], fields: Fields) -> Column:
    """A record's object, and its text where that, or a part of it, is not of this shape.

    Parsed as the field of an object: what stands behind the record's own would be passed over. The cast goes by the
    places of fields: it renames them, whatever characters and cases the record's names have.
    """
    text = F.try_validate_utf8(F.col(side).cast("string"))
    whole = F.concat(F.lit(f'{{"{_OBJECT}":'), text, F.lit("}"))
    options = {"columnNameOfCorruptRecord": _MALFORMED, "allowSingleQuotes": "false"}
    written, read = (f"struct<{_OBJECT}: {shape(names)}, {_MALFORMED}: string>" for names in (fields, NO_FIELDS))
    parsed = F.from_json(whole, written, options)
    return parsed.cast(read) if fields else parsed


def _with_schema(payload: str, schema: str) -> str:
    return f"struct<payload: struct<{payload}>, schema: struct<{schema}>>"


def _row(columns: Iterable[str], fields: Fields = NO_FIELDS) -> str:
    names = (fields.get(c, c).replace("`", "``") for c in columns)
    return ", ".join(f"`{name}`: string" for name in names)


def _source(times: Sequence[str]) -> dict[str, str]:
    return {**_SOURCE, **dict.fromkeys(times, "bigint")}


def _event(table: Table, times: Sequence[str], fields: Fields) -> str:
    source = ", ".join(f"{name}: {kind}" for name, kind in _source(times).items())
    added = f"{FIELD_EPOCH}: string, {FIELD_UNAVAILABLE}: string"
    # Of the row before nothing is read but that it is one.
    after, before = _row(table.columns, fields), _row(table.key, fields)
    rows = f"{FIELD_AFTER}: struct<{after}>, {FIELD_BEFORE}: struct<{before}>"
    return f"op: string, {rows}, source: struct<{source}>, {added}"
