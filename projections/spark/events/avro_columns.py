"""Framed Avro to columns inside the JVM: one ``from_avro`` for all schemas of a topic.

Each such expression reads Hadoop's configuration files once a task. A batch of few records would spend most of its time
on that if every schema had one. The schemas are therefore the branches of one union, whose number in front of a value
takes the place of the frame.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from eventstore.fields.serialization import FRAME, encode_value
from eventstore.fields.unions import short_name
from eventstore.schema_registry import RegisteredSchema
from projections.spark.events.plain_values import MEMBER

_EVENT: Final = "event"


def has_id(schema: RegisteredSchema) -> Column:
    """Whether the frame of ``value`` names a schema."""
    return F.expr(f"substring(value, 1, {FRAME}) = X'00{schema.id:08X}'")


def parsed(schemas: Sequence[RegisteredSchema], *, sentinel: str) -> Column:
    """A record of any of the schemas; `branch` finds its fields. Those of a broken record are all null.

    Every branch has a further field, the ``sentinel``: Avro sets it to true where a record fits its schema.
    """
    number = F.when(F.lit(False), F.lit(b""))
    for place, schema in enumerate(schemas):
        number = number.when(has_id(schema), F.lit(encode_value("long", place)))
    read = [{**s.schema, "fields": [*s.schema["fields"], _true(sentinel)]} for s in schemas]
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(_any_of(schemas, read))}
    written = json.dumps(_any_of(schemas, [s.schema for s in schemas]))
    return from_avro(F.concat(number, F.expr(f"substring(value, {FRAME + 1})")), written, options)


def branch(record: Column, place: int, *, of: int) -> Column:
    """The fields of the schema in a place ``of`` so many; null in records of others. Spark makes no union of one."""
    return record[_EVENT] if of == 1 else record[_EVENT][f"{MEMBER}{place}"]


def _true(name: str) -> Mapping[str, object]:
    return {"name": name, "type": "boolean", "default": True}


def _any_of(schemas: Sequence[RegisteredSchema], forms: Sequence[Mapping[str, Any]]) -> Mapping[str, object]:
    """A record of one field, which is of any of some forms; each has names of its own."""
    branches = [{**_short(form), "namespace": f"schema{s.id}"} for s, form in zip(schemas, forms, strict=True)]
    return {"type": "record", "name": "any", "fields": [{"name": _EVENT, "type": branches}]}


def _short(avro: Any) -> Any:
    """The same type; what it defines and names has the namespace of what it stands in."""
    if isinstance(avro, str):
        return short_name(avro)
    if isinstance(avro, list):
        return [_short(member) for member in avro]
    inner = {part: _short(avro[part]) for part in ("type", "items", "values") if part in avro}
    named = {"name": short_name(avro)} if "name" in avro else {}
    fields = {"fields": [{**f, "type": _short(f["type"])} for f in avro["fields"]]} if "fields" in avro else {}
    return {part: value for part, value in avro.items() if part != "namespace"} | inner | named | fields
