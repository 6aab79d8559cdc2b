"""Event records to columns, inside the JVM: one ``from_avro`` a writer schema, chosen by the record's schema id.

Without Spark's Avro jar a Python worker takes the place of that function alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from eventstore.serialization import FRAME
from projections.spark.failures import refuse
from projections.spark.python_avro import avro_in_the_jvm, parsed_in_python

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENTINEL = "_factfold_decoded"
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
        return [(column_of(s), s) for s in self.schemas if s.name == event_type]

    def prepare(self, *, keep: Sequence[str] = ()) -> Callable[[DataFrame], DataFrame]:
        """The decoding step: gives _stream, _version, _at_offset, _type and one struct column a schema.

        ``keep`` names columns of the raw records that are wanted beside them.

        A record that cannot be read fails the query. The columns are built once and used for every batch: building them
        costs more than the analysis of a small batch.
        """
        from pyspark.sql import functions as F

        number = F.substring_index(F.col("key").cast("string"), "@", -1)
        parsed: list[Column | str] = [
            *dict.fromkeys(["topic", "partition", "offset", "value", *keep]),
            F.expr(_STREAM).alias("_stream"),
            F.coalesce(number.try_cast("bigint"), refuse("bad_key", number)).alias("_version"),
            *self.parsed(),
        ]  # fmt: skip
        kept: list[Column | str] = [
            *keep,
            "_stream",
            "_version",
            F.col("offset").alias("_at_offset"),
            self.judged(good=lambda schema: F.lit(schema.name), fault=refuse).alias("_type"),
            *map(column_of, self.schemas),
        ]
        return lambda raw: raw.select(*parsed).select(*kept)

    def parsed(self) -> list[Column]:
        """One struct column a schema, null in records of others.

        They belong in a projection of their own: inlined into each use, every field would decode its record again.
        """
        return [self._parsed(schema).alias(column_of(schema)) for schema in self.schemas]

    def _parsed(self, schema: RegisteredSchema) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        if not avro_in_the_jvm():
            return parsed_in_python(F.col("value"), schema, sentinel=_SENTINEL)
        body = F.expr(f"substring(value, {FRAME + 1})")
        options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(_with_sentinel(schema))}
        return F.when(_has_id(schema), from_avro(body, json.dumps(schema.schema), options))

    def judged(self, *, good: Callable[[RegisteredSchema], Column], fault: Callable[..., Column]) -> Column:
        """One value for each parsed record: ``good`` of its schema, or ``fault`` of a kind of fault and its detail.

        PERMISSIVE leaves every field of a broken record null, the sentinel too.
        """
        from pyspark.sql import functions as F

        choice = F.when(F.col("value").isNull(), fault("deleted"))
        for schema in self.schemas:
            broken = F.col(column_of(schema))[_SENTINEL].isNull()
            whole = F.when(broken, fault("bad_avro", F.lit(schema.name))).otherwise(good(schema))
            choice = choice.when(_has_id(schema), whole)
        head = F.coalesce(F.hex(F.expr(f"substring(value, 1, {FRAME})")), F.lit("nothing"))
        framed = F.expr(f"substring(value, 1, 1) = X'00' and length(value) >= {FRAME}")
        return choice.when(framed, fault("unknown_schema", _schema_id())).otherwise(fault("not_avro", head))


def _schema_id() -> Column:
    from pyspark.sql import functions as F

    return F.conv(F.expr(f"substring(hex(substring(value, 1, {FRAME})), 3)"), 16, 10)


def _has_id(schema: RegisteredSchema) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"substring(value, 1, {FRAME}) = X'00{schema.id:08X}'")


def column_of(schema: RegisteredSchema) -> str:
    """The struct column that records of a schema are decoded into."""
    return f"_event_{schema.id}"


def _with_sentinel(schema: RegisteredSchema) -> Mapping[str, object]:
    """The reader's schema: the writer's and a field of ours that Avro's resolution sets whenever it succeeds."""
    sentinel = {"name": _SENTINEL, "type": "boolean", "default": True}
    return {**schema.schema, "fields": [*schema.schema["fields"], sentinel]}
