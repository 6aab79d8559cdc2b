"""Nested values of events as their classes are today, whatever schema they were written by.

A record inside of a field is read as it was written: fields that its class does not have any more are left out, one
that is new takes its default (docs/concepts/evolution.md).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from eventstore.fields.field_types import Avro, Field, FieldType
from projections.declaring.avro_records import spelled_out, value_type
from projections.declaring.columns import from_avro
from projections.errors import InvalidDefinition
from projections.spark.events.upcasting import literal


def of_today(value: Column, written: Avro, today: FieldType, *, place: str) -> Column:
    """A value of a writer's type as today's has it; InvalidDefinition where that cannot be."""
    match value_type(written):
        case {"type": "record", "fields": fields} if today.record is not None:
            known = {field["name"]: field["type"] for field in fields}
            parts = (_field(value, known, field, place).alias(field.name) for field in today.fields)
            return F.when(value.isNotNull(), F.struct(*parts))
        case {"type": "array", "items": items} if len(today.inner) == 1:
            return F.transform(value, lambda item: of_today(item, items, today.inner[0], place=f"{place}[]"))
        case {"type": "map", "values": values} if len(today.inner) == 1:
            inner = today.inner[0]
            return F.transform_values(value, lambda _, one: of_today(one, values, inner, place=f"{place}{{}}"))
    if from_avro(written, place=place) == from_avro(today.avro, place=place):
        return value
    raise InvalidDefinition(
        f"events hold {written!r} where {today.avro!r} is declared",
        remedy="a part of a record keeps its type: declare a new field with a default next to it",
        place=place,
    )


def _field(value: Column, written: dict[str, Any], field: Field, place: str) -> Column:
    if field.name in written:
        return of_today(value[field.name], written[field.name], field.type, place=f"{place}.{field.name}")
    if field.default is None:
        raise InvalidDefinition(
            f"events were written without {field.name}, which has no default",
            remedy="give the new field a default: events stored before it existed stay without it",
            place=f"{place}.{field.name}",
        )
    default = field.default()
    plain = default if field.type.to_plain is None else field.type.to_plain(default)
    return literal(plain, spelled_out(field.type.avro))
