"""Event records to columns, inside the JVM: one ``from_avro`` a writer schema, chosen by the record's schema id."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from projections.spark.failures import refuse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENTINEL = "_factfold_decoded"
FRAME = 5  # magic byte and four bytes of schema id
# The key without its last @ and what follows.
_STREAM = "left(string(key), length(string(key)) - length(substring_index(string(key), '@', -1)) - 1)"


@dataclass(frozen=True)
class Decoder:
    """The writer schemas of one topic's event types, each with the column its records decode into."""

    schemas: Sequence[RegisteredSchema]

    @staticmethod
    def of(names: Sequence[str], registry: Mapping[int, RegisteredSchema]) -> Decoder:
        """The decoder of the given event types, from every schema that the registry holds of them."""
        wanted = set(names)
        return Decoder(sorted((s for s in registry.values() if s.name in wanted), key=lambda s: s.id))

    def columns_of(self, event_type: str) -> list[tuple[str, RegisteredSchema]]:
        """The decoded columns that hold events of a type."""
        return [(_column(s), s) for s in self.schemas if s.name == event_type]

    def prepare(self) -> Callable[[DataFrame], DataFrame]:
        """The decoding step: gives _stream, _version, _at_offset, _type and one struct column a schema.

        A record that cannot be read fails the query. The parsed structs are columns of a projection of their own:
        inlined into each use, every field would decode its record again. The columns are built once and used for every
        batch: building them costs more than the analysis of a small batch.
        """
        from pyspark.sql import functions as F

        number = F.substring_index(F.col("key").cast("string"), "@", -1)
        parsed: list[Column | str] = [
            "topic", "partition", "offset", "value",
            F.expr(_STREAM).alias("_stream"),
            F.coalesce(number.try_cast("bigint"), refuse("bad_key", number)).alias("_version"),
            *(self._parsed(schema).alias(_column(schema)) for schema in self.schemas),
        ]  # fmt: skip
        kept: list[Column | str] = [
            "_stream",
            "_version",
            F.col("offset").alias("_at_offset"),
            self._type().alias("_type"),
            *map(_column, self.schemas),
        ]
        return lambda raw: raw.select(*parsed).select(*kept)

    def _parsed(self, schema: RegisteredSchema) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        body = F.expr(f"substring(value, {FRAME + 1})")
        options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(_with_sentinel(schema))}
        return F.when(_has_id(schema), from_avro(body, json.dumps(schema.schema), options))

    def _type(self) -> Column:
        """The event type, or a failure: PERMISSIVE leaves every field of a broken record null, the sentinel too."""
        from pyspark.sql import functions as F

        choice = F.when(F.col("value").isNull(), refuse("deleted"))
        for schema in self.schemas:
            broken = F.col(_column(schema))[_SENTINEL].isNull()
            good = F.when(broken, refuse("bad_avro", F.lit(schema.name))).otherwise(F.lit(schema.name))
            choice = choice.when(_has_id(schema), good)
        return choice.otherwise(_refuse_unknown())


def _refuse_unknown() -> Column:
    from pyspark.sql import functions as F

    head = F.coalesce(F.hex(F.expr(f"substring(value, 1, {FRAME})")), F.lit("nothing"))
    framed = F.expr(f"substring(value, 1, 1) = X'00' and length(value) >= {FRAME}")
    schema_id = F.conv(F.expr(f"substring(hex(substring(value, 1, {FRAME})), 3)"), 16, 10)
    return F.when(framed, refuse("unknown_schema", schema_id)).otherwise(refuse("not_avro", head))


def _has_id(schema: RegisteredSchema) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"substring(value, 1, {FRAME}) = X'00{schema.id:08X}'")


def _column(schema: RegisteredSchema) -> str:
    return f"_event_{schema.id}"


def _with_sentinel(schema: RegisteredSchema) -> Mapping[str, object]:
    """The reader's schema: the writer's and a field of ours that Avro's resolution sets whenever it succeeds."""
    sentinel = {"name": _SENTINEL, "type": "boolean", "default": True}
    return {**schema.schema, "fields": [*schema.schema["fields"], sentinel]}
