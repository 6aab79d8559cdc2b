"""What a sealed value is bound to, computed inside the JVM and stored after the value.

A state row does not say in which event its values were sealed. A sealed value therefore carries the digest of
`eventstore.personal.sealing.binding`, computed from the record that held it, and opens by that alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.fields.casting import kind_of
from eventstore.personal.sealing import BOUND
from eventstore.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column


def with_bindings(record: Column, schema: RegisteredSchema) -> Column:
    """A decoded record of a schema, its sealed values as `SealedField.from_state` reads them.

    The row also has the columns ``_stream`` and ``ce_id``.
    """
    from pyspark.sql import functions as F

    fields = {name: record[name] for name in schema.personal}
    for name, sealed in fields.items():
        bound = F.concat(sealed, _binding(record, schema, name))
        is_bound = F.substring(sealed, 1, 1) == F.lit(bytearray(BOUND))
        record = record.withField(name, F.when(is_bound, bound).otherwise(sealed))
    return record


def _binding(record: Column, schema: RegisteredSchema, name: str) -> Column:
    from pyspark.sql import functions as F

    event_id = F.lower(F.replace(F.col("ce_id"), F.lit("-"), F.lit("")))
    parts = [F.lit(schema.name), F.lit(name), F.col("_stream"), event_id, _subject(record, schema, name)]
    return F.unhex(F.sha2(F.concat(*map(_netstring, parts)), 256))


def _netstring(part: Column) -> Column:
    """One part and its length; what is missing is as an empty one, under which no value was sealed."""
    from pyspark.sql import functions as F

    text = F.coalesce(part, F.lit(""))
    return F.concat(F.octet_length(text).cast("string"), F.lit(":"), text)


def _subject(record: Column, schema: RegisteredSchema, name: str) -> Column:
    from pyspark.sql import functions as F

    named = schema.personal[name].get("subject")
    kinds = {field["name"]: field["type"] for field in schema.schema["fields"]}
    if named is None:
        return F.expr("substring(_stream, instr(_stream, '-') + 1)")
    if named not in kinds:
        return F.lit("")
    text = record[named].cast("string")
    return F.lower(text) if kind_of(kinds[named]) == "uuid" else text
