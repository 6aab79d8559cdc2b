"""Events folded into rows inside the JVM: the last event that sets a column decides it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eventstore.aggregates.aggregate import Aggregate
from eventstore.fields.conversions import Avro
from eventstore.fields.field_types import Field, FieldType
from eventstore.personal.sealing import KEY_ID
from eventstore.schema_registry import RegisteredSchema, is_sealed
from projections.declaring.any_table import sealed_parts
from projections.declaring.columns import ColumnType, Setter, from_avro, spelled_out, value_type
from projections.declaring.streams import EventStream, EventVersions
from projections.declaring.tables import EventTable, set_at
from projections.errors import InvalidDefinition
from projections.spark.events.decode import Decoder
from projections.spark.events.upcasting import literal
from projections.spark.gathering import gathered
from projections.spark.nesting import as_stored
from projections.spark.table_kind import Fold, Registry, Step, T, TableKind

# ``_first`` begins the versions that end in ``_pos`` without a gap.
STAGING = ("_epoch", "_pos", "_offset", "_deleted", "_first")
_SEALED = "struct<value: binary, schema: bigint>"


class OfStreams(TableKind[T]):
    """A row for each stream, folded from its events: dense versions show which are missing."""

    gap = "events_missing"
    as_written = False  # evolve gets the values as they were written; columns are taken from current ones

    def decoder(self, registry: Registry) -> Decoder:
        """The decoder of the table's records."""
        return Decoder.of_table(self.table, registry, as_written=self.as_written)

    def lacks(self) -> Column:
        """Whether events before a row's are missing. Compaction takes those of a deleted stream away one by one."""
        return (F.col("_first") > 0) & ~F.col("_deleted")


class DeclaredFold(OfStreams[EventTable]):
    """The last event that sets a column decides it."""

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`."""
        decoder = self.decoder(registry)
        return decoder.prepare(bind=bool(self.table.personal)), _declared_fold(self.table, decoder)


def _declared_fold(table: EventTable, decoder: Decoder) -> Fold:
    """From decoded records to one row a stream: what each column was set to, and at which version.

    ``max_by(value, version)`` needs no order of arrival and does not mind a record that comes twice. A stream is
    deleted where one of its records has no value: events of it may lie before that.
    """
    set_columns = table.set_by
    values = {part: v for c, setters in set_columns.items() for part, v in set_values(table, c, setters, decoder)}
    kinds = list(dict.fromkeys(s.event.name for setters in set_columns.values() for s in setters))
    nth = ["_nth"] if decoder.splits else []
    facts: list[Column | str] = ["_stream", "_version", *nth, "_at_offset", kind_number(kinds)]
    facts += [value.alias(part) for part, value in values.items()]
    columns = {c: _Column(table.parts(c), [kinds.index(s.event.name) for s in set_columns[c]]) for c in set_columns}
    aggregates, key = _aggregates(columns, order_of(decoder)), key_column(table)
    names = [*values, *(set_at(c) for c in set_columns), *STAGING]

    def fold(decoded: DataFrame, stored: DataFrame | None) -> DataFrame:
        return gathered(decoded.select(*facts), ["_stream"]).agg(*aggregates).select(key, *names)

    return fold


def kind_number(kinds: Sequence[str]) -> Column:
    """Which of the events that set a column a record is, as a number: null where it has no value, -1 for other events.

    One number is exchanged and sorted along with a record's values, where a flag for each column would double its row.
    """
    choice = F.when(F.col("_type").isNull(), F.lit(None).cast("int"))
    for number, name in enumerate(kinds):
        choice = choice.when(F.col("_type") == name, F.lit(number))
    return choice.otherwise(F.lit(-1)).alias("_kind")


@dataclass(frozen=True)
class _Column:
    """A declared column: the parts that store it, and the kinds of events that set it."""

    parts: Sequence[str]
    set_by: Sequence[int]


def _aggregates(columns: Mapping[str, _Column], order: Column) -> list[Column]:
    version = F.col("_version")

    def where_set(column: _Column, value: Column) -> Column:
        return F.when(F.col("_kind").isin(*column.set_by), value)

    return [
        *(F.max_by(part, where_set(c, order)).alias(part) for c in columns.values() for part in c.parts),
        *(F.max(where_set(c, version)).alias(set_at(name)) for name, c in columns.items()),
        F.lit(0).cast("bigint").alias("_epoch"),
        F.max(version).alias("_pos"),
        F.max("_at_offset").alias("_offset"),
        F.max(F.col("_kind").isNull()).alias("_deleted"),
        _last_run(F.collect_set(version)).alias("_first"),
    ]


def _last_run(versions: Column) -> Column:
    """The first of those versions that end in the last one without a gap."""
    ordered = F.array_sort(versions)
    # The same all along a run, and less in the runs before it.
    apart = F.transform(ordered, lambda version, place: version - place)
    return F.element_at(ordered, F.array_position(apart, F.element_at(apart, -1)).cast("int"))


def order_of(decoder: Decoder) -> Column:
    """What orders a stream's events: the version, and where a record may become several which of them it is."""
    return F.struct("_version", "_nth") if decoder.splits else F.col("_version")


def key_column(table: EventTable | EventVersions) -> Column:
    """The key column out of the stream's name."""
    return identity(table.aggregate).alias(table.key[0])


def identity(aggregate: type[Aggregate]) -> Column:
    """The aggregate's id: the part of the stream's name after the category."""
    return F.substring(F.col("_stream"), len(aggregate.category) + 2, 1 << 20)


def set_values(
    table: EventTable | EventStream | EventVersions, column: str, setters: Sequence[Setter], decoder: Decoder
) -> Iterator[tuple[str, Column]]:
    """What the event at hand sets each part of a column to; a field missing in an older schema of the event is null.

    Raises InvalidDefinition where records of the field are sealed, and the column does not know it.
    """
    held = [(setter, _held(setter, decoder)) for setter in setters]
    kind = table.columns[column]
    yield column, _chosen(kind.ddl, ((setter, _clear(setter, fields, kind)) for setter, fields in held))
    if column in table.personal:
        _require_declared(column, setters, decoder)
        sealed = _chosen(_SEALED, ((setter, _sealed(fields)) for setter, fields in held))
        yield from zip(sealed_parts(column), (sealed["value"], _key_id(sealed["value"]), sealed["schema"]), strict=True)
    else:
        _require_clear(column, held)


@dataclass(frozen=True)
class _Field:
    """A field of an event as records of one schema hold it."""

    value: Column
    avro: Avro
    schema: RegisteredSchema

    @property
    def sealed(self) -> bool:
        """Whether it is sealed under the key of a person."""
        return is_sealed(self.avro)

    def clear(self, setter: Setter, kind: ColumnType) -> Column:
        """The value as the column keeps it."""
        if not kind.shape:
            return self.value
        place = f"{setter.event.name}.{setter.field}"
        today = next(field.type for field in setter.event.fields if field.name == setter.field)
        same = from_avro(self.avro, place=place) == kind
        return as_stored(self.value if same else of_today(self.value, self.avro, today, place=place), kind.shape)


def _held(setter: Setter, decoder: Decoder) -> list[_Field]:
    return [
        _Field(F.col(column)[field["name"]], field["type"], schema)
        for column, schema in decoder.columns_of(setter.event.name)
        for field in spelled_out(schema.schema)["fields"]
        if field["name"] == setter.field
    ]


def _chosen(ddl: str, values: Iterable[tuple[Setter, Column]]) -> Column:
    choice = F.when(F.lit(False), F.lit(None).cast(ddl))
    for setter, value in values:
        choice = choice.when(F.col("_type") == setter.event.name, value.cast(ddl))
    return choice


def _clear(setter: Setter, held: Sequence[_Field], kind: ColumnType) -> Column:
    if setter.field is None:
        return F.lit(setter.value)
    clear = [field.clear(setter, kind) for field in held if not field.sealed]
    return F.coalesce(*clear) if clear else F.lit(None)


def _sealed(held: Sequence[_Field]) -> Column:
    values = [
        F.when(field.value.isNotNull(), F.struct(field.value.alias("value"), F.lit(field.schema.id).alias("schema")))
        for field in held
        if field.sealed
    ]
    return F.coalesce(*values) if values else F.lit(None)


def _key_id(sealed: Column) -> Column:
    first, last = KEY_ID.start, KEY_ID.stop
    return F.lower(F.hex(F.substring(sealed, first + 1, last - first)))


def _require_declared(column: str, setters: Sequence[Setter], decoder: Decoder) -> None:
    for reading in decoder.readings:
        if reading.needs_python and reading.written.personal and reading.kind in [s.event for s in setters]:
            raise InvalidDefinition(
                f"a function upcasts {reading.kind.name} of version {reading.written.version}, and would see it sealed",
                remedy="declare the change: Rename, Default, Drop, Cast or Retype, or take a clear field",
                place=f"column {column}",
            )


def _require_clear(column: str, held: Iterable[tuple[Setter, Sequence[_Field]]]) -> None:
    for setter, fields in held:
        if any(field.sealed for field in fields):
            raise InvalidDefinition(
                f"records of {setter.event.name} hold {setter.field!r} sealed, and its class does not say Personal",
                remedy="leave the field personal for as long as its records are: they open by their keys alone",
                place=f"column {column}",
            )


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
