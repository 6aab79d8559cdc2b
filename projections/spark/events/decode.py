"""Event records to columns, inside the JVM: one struct column a writer schema, chosen by the record's schema id.

Without Spark's Avro jar a Python worker takes the place of that function alone.

A state row does not say in which event its values were sealed. A sealed value therefore carries the digest of
`eventstore.personal.sealing.binding`, computed from the record that held it, and opens by that alone.

All schemas of a topic have one ``from_avro``. Each such expression reads Hadoop's configuration files once a task. A
batch of few records would spend most of its time on that if every schema had one. The schemas are therefore the
branches of one union, whose number in front of a value takes the place of the frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from eventstore.event_types import EventType
from eventstore.fields.conversions import kind_of
from eventstore.fields.serialization import FRAME, encode_value
from eventstore.fields.unions import short_name
from eventstore.schema_registry import RegisteredSchema
from projections.declaring.tables import Table
from projections.spark.events.plain_values import MEMBER
from projections.spark.events.python_avro import avro_in_the_jvm, parsed_in_python
from projections.spark.events.upcasting import Reading, split
from projections.spark.failures import AT, FAULT, PLACE, fault, no_fault
from projections.spark.table_kind import Step

_EVENT: Final = "event"


def with_bindings(record: Column, schema: RegisteredSchema) -> Column:
    """A decoded record of a schema, its sealed values as `SealedField.from_state` reads them.

    The row also has the columns ``_stream`` and ``ce_id``.
    """
    fields = {name: record[name] for name in schema.personal}
    for name, sealed in fields.items():
        record = record.withField(name, F.concat(sealed, _binding(record, schema, name)))
    return record


def _binding(record: Column, schema: RegisteredSchema, name: str) -> Column:
    event_id = F.lower(F.replace(F.col("ce_id"), F.lit("-"), F.lit("")))
    parts = [F.lit(schema.name), F.lit(name), F.col("_stream"), event_id, _subject(record, schema, name)]
    return F.unhex(F.sha2(F.concat(*map(_netstring, parts)), 256))


def _netstring(part: Column) -> Column:
    """One part and its length; what is missing is as an empty one, under which no value was sealed."""
    text = F.coalesce(part, F.lit(""))
    return F.concat(F.octet_length(text).cast("string"), F.lit(":"), text)


def _subject(record: Column, schema: RegisteredSchema, name: str) -> Column:
    named = schema.personal[name].get("subject")
    kinds = {field["name"]: field["type"] for field in schema.schema["fields"]}
    if named is None:
        return F.expr("substring(_stream, instr(_stream, '-') + 1)")
    if named not in kinds:
        return F.lit("")
    text = record[named].cast("string")
    return F.lower(text) if kind_of(kinds[named]) == "uuid" else text


_SENTINEL = "_factfold_decoded"
_FOREIGN = "_factfold_foreign"
_RECORD = "_factfold_record"
_MISFIT = "a value does not fit its new type"
# The key without its last @ and what follows.
_STREAM = "left(string(key), length(string(key)) - length(substring_index(string(key), '@', -1)) - 1)"


@dataclass(frozen=True)
class Decoder:
    """The writer schemas of one topic's event types, each with the column its records decode into.

    Records are read as their event types are today, unless ``as_written``.
    """

    readings: Sequence[Reading]
    as_written: bool = False
    source: str | None = None

    @staticmethod
    def of(
        kinds: Iterable[EventType],
        registry: Mapping[int, RegisteredSchema],
        *,
        as_written: bool = False,
        source: str | None = None,
    ) -> Decoder:
        """The decoder of the given event types, from every schema that the registry holds of them.

        With a ``source`` raw records have a ``ce_source``, and those of another one are refused.
        """
        named = {name: kind for kind in kinds for name in kind.stored_names}
        readings = {s.id: Reading.of(s, named[s.name]) for s in registry.values() if s.name in named}
        if not as_written and any(reading.needs_python for reading in readings.values()):
            readings |= {k.schema_id: Reading.of(k.registered, k) for k in named.values()}
        return Decoder([readings[schema_id] for schema_id in sorted(readings)], as_written, source)

    @staticmethod
    def of_table(table: Table, registry: Mapping[int, RegisteredSchema], *, as_written: bool = False) -> Decoder:
        """The decoder of a table's event types, of its source."""
        return Decoder.of(table.event_types(), registry, as_written=as_written, source=table.source)

    @property
    def schemas(self) -> Sequence[RegisteredSchema]:
        """What records look like, under the ids of their writers' schemas."""
        return [reading.written if self.as_written else reading.seen for reading in self.readings]

    @property
    def splits(self) -> bool:
        """Whether a record may become several: then ``_nth`` tells which of them a row is."""
        return not self.as_written and any(reading.needs_python for reading in self.readings)

    def columns_of(self, event_type: str) -> list[tuple[str, RegisteredSchema]]:
        """The decoded columns that hold events of a type."""
        return [(column_of(s), s) for s in self.schemas if s.name == event_type]

    def prepare(self, *, keep: Sequence[str] = (), bind: bool = False) -> Step:
        """The decoding step: gives _stream, _version, _at_offset, _type, a struct column for each schema, maybe _nth.

        And each record's place and its fault: null where it could be read. ``_type`` is null if the record has no
        value: it deletes an event of a deleted stream. ``keep`` names further columns of the raw records for the
        result. With ``bind``, sealed values are followed by their binding, and raw records need a ``ce_id``.

        The columns are built once and used for every batch: building them costs more than the analysis of a small
        batch.
        """
        nth, number = ["_nth"] if self.splits else [], version_text()
        own = [AT, *keep, *nth, "_stream", "_version"]
        framed: list[Column | str] = [
            F.struct(*PLACE).alias(AT),
            *dict.fromkeys(["value", *keep, *nth, *(["ce_id"] if bind else [])]),
            stream_of_key().alias("_stream"),
            number.try_cast("bigint").alias("_version"),
            F.when(number.try_cast("bigint").isNull(), fault("bad_key", number)).alias("_bad_key"),
            *self.foreign(),
        ]
        has_value = F.col("value").isNotNull()
        judged = F.coalesce("_bad_key", F.when(has_value, self.judged(good=lambda schema: no_fault(), fault=fault)))
        result: list[Column | str] = [
            *own,
            F.col(AT)["offset"].alias("_at_offset"),
            F.when(has_value, self._named()).alias("_type"),
            self.unless_foreign(judged, fault=fault).alias(FAULT),
            *map(column_of, self.schemas),
        ]
        parse, today = self.parsing(), self.today([*own, "value", "_bad_key", *self.judged_by])
        bound = {column_of(s): with_bindings(F.col(column_of(s)), s) for s in self._personal} if bind else {}
        return lambda raw: today(parse(self._split(raw).select(*framed)).withColumns(bound)).select(*result)

    def _named(self) -> Column:
        """The event type of a record, by its schema's id."""
        choice = F.when(F.lit(False), F.lit(None).cast("string"))
        for schema in self.schemas:
            choice = choice.when(has_id(schema), F.lit(schema.name))
        return choice

    @property
    def _personal(self) -> Sequence[RegisteredSchema]:
        return [reading.written for reading in self.readings if reading.written.personal]

    @property
    def judged_by(self) -> list[str]:
        """The columns of `foreign`, for those that keep columns by name."""
        return [] if self.source is None else [_FOREIGN]

    def foreign(self) -> list[Column]:
        """The fault detail of a record from another source, else null; no column if every source is accepted."""
        if self.source is None:
            return []
        actual = F.coalesce(F.concat(F.lit("'"), F.col("ce_source"), F.lit("'")), F.lit("none"))
        mismatch = F.concat(F.lit(f"'{self.source}' is declared, and the record's source is "), actual)
        own = F.equal_null("ce_source", F.lit(self.source))
        return [F.when(~own, mismatch).alias(_FOREIGN)]

    def unless_foreign(self, judged: Column, *, fault: Callable[..., Column]) -> Column:
        """What was judged of a record, or the fault that it is of another source."""
        if self.source is None:
            return judged
        foreign = F.col(_FOREIGN)
        return F.when(foreign.isNotNull(), fault("other_source", foreign)).otherwise(judged)

    def today(self, keep: Sequence[str]) -> Step:
        """The step after `parsing`: records as they are seen; no step if all were written by current schemas."""
        changed = [] if self.as_written else [reading for reading in self.readings if reading.changes]
        if not changed:
            return lambda parsed: parsed
        columns = {column_of(r.written): r.today(F.col(column_of(r.written)), _SENTINEL) for r in changed}
        every: list[Column | str] = [*dict.fromkeys(keep)]
        every += [columns[c].alias(c) if c in columns else c for c in map(column_of, self.schemas)]
        return lambda parsed: parsed.select(*every)

    def _split(self, raw: DataFrame) -> DataFrame:
        if not self.splits:
            return raw
        values = split(F.col("value"), [reading for reading in self.readings if reading.needs_python])
        others = [column for column in raw.columns if column != "value"]
        every = F.posexplode(F.coalesce(values, F.array("value"))).alias("_nth", "value")
        return raw.select(*others, every)

    def parsing(self) -> Step:
        """The step that adds a struct column for each schema, null in records of others.

        It takes projections of its own: inlined into each use, every field would decode its record again.
        """
        written = [reading.written for reading in self.readings]
        if not avro_in_the_jvm():
            apart = {column_of(s): parsed_in_python(F.col("value"), s, sentinel=_SENTINEL) for s in written}
            return lambda rows: rows.withColumns(apart)
        if not written:
            return lambda rows: rows
        record, count = parsed(written, sentinel=_SENTINEL), len(written)
        fields = {column_of(s): branch(F.col(_RECORD), place, of=count) for place, s in enumerate(written)}
        return lambda rows: rows.withColumn(_RECORD, record).withColumns(fields).drop(_RECORD)

    def judged(self, *, good: Callable[[RegisteredSchema], Column], fault: Callable[..., Column]) -> Column:
        """One value for each parsed record with a value: ``good`` of its schema, or ``fault`` of a kind and its detail.

        PERMISSIVE leaves every field of a broken record null, the sentinel too.
        """
        head = F.coalesce(F.hex(F.expr(f"substring(value, 1, {FRAME})")), F.lit("nothing"))
        not_avro = fault("not_avro", head)
        choice = F.when(F.lit(False), not_avro)
        for reading, schema in zip(self.readings, self.schemas, strict=True):
            sound = F.col(column_of(schema))[_SENTINEL]
            whole = F.when(sound.isNull(), fault("bad_avro", F.lit(schema.name)))
            if reading.changes and not self.as_written:
                whole = whole.when(~sound, fault("bad_cast", F.lit(f"{schema.name}: {reading.problem or _MISFIT}")))
            lacking = F.lit(f"{reading.kind.name}: {', '.join(reading.missing)}")
            rest = fault("field_missing", lacking) if reading.missing else good(schema)
            choice = choice.when(has_id(schema), whole.otherwise(rest))
        framed = F.expr(f"substring(value, 1, 1) = X'00' and length(value) >= {FRAME}")
        return choice.when(framed, fault("unknown_schema", _schema_id())).otherwise(not_avro)


def stream_of_key() -> Column:
    """The stream that a raw event record belongs to."""
    return F.expr(_STREAM)


def version_text() -> Column:
    """The version of a raw event record as its key has it: text that should be a number."""
    return F.substring_index(F.col("key").cast("string"), "@", -1)


def _schema_id() -> Column:
    return F.conv(F.expr(f"substring(hex(substring(value, 1, {FRAME})), 3)"), 16, 10)


def column_of(schema: RegisteredSchema) -> str:
    """The struct column that records of a schema are decoded into."""
    return f"_event_{schema.id}"


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
