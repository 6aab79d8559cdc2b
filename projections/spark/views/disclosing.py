"""Personal values opened where rows are handed to a view's function: few by the driver, many by the executors.

Opening is Python in Arrow batches, with one look-up of keys a batch. Unwrapping a key is Python anyway, and costs as
much as opening a value. No key enters a JVM (docs/decisions/0027).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventstore.erasure import FollowedKeys, PersonalData
from eventstore.errors import InvalidEventData
from eventstore.event_types import EventType
from eventstore.fields.upcasting import name_taken
from eventstore.personal.sealing import SealedField
from eventstore.schema_registry import RegisteredSchema, unknown_schema
from projections.declaring.any_table import AnyTable, sealed_parts
from projections.declaring.columns import Setter
from projections.errors import keys_missing
from projections.spark.python_workers import settled
from projections.spark.reading.records import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Disclosure:
    """Opens the personal columns of a group's rows; made again when the registry has a new schema."""

    def __init__(self, registry: Mapping[int, RegisteredSchema], keys: FollowedKeys | None) -> None:
        self._registry = registry
        self._keys = keys
        self._openers: dict[int, _Opener] = {}

    def opened(self, rows: Rows, table: AnyTable) -> Rows:
        """Rows of ``table.sliced`` as rows of ``table.opened``; InvalidSeal, KeysMissing."""
        if not table.personal:
            return rows
        if self._keys is None:
            raise keys_missing(place=f"topic {table.topic}")
        if id(table) not in self._openers:
            self._openers[id(table)] = _Opener.of(table, self._registry)
        opener = self._openers[id(table)]
        if isinstance(rows, pa.Table):
            return opener.open(rows, self._keys)
        return _by_executors(rows, opener, self._keys)


def _by_executors(rows: DataFrame, opener: _Opener, keys: FollowedKeys) -> DataFrame:
    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield from opener.open(pa.Table.from_batches([batch]), keys).to_batches()
        finally:
            keys.close()

    return rows.mapInArrow(settled(opened), ", ".join(f"`{c}` {t.ddl}" for c, t in opener.table.opened.items()))


@dataclass(frozen=True)
class _Way:
    """How a sealed value of one schema becomes a column's: opened as the writer's field, then upcast to the current."""

    schema: RegisteredSchema
    written: str
    kind: EventType
    field: str

    def upcast(self, clear: Any) -> Any:
        carried = self.kind.carried(self.schema.version, {self.written: clear}, secret=True)
        assert isinstance(carried, dict)  # noqa: S101 - none of its upcasters is a function
        return carried[self.field]


@dataclass(frozen=True)
class _Opener:
    """The ways of a table's personal columns, by the ids of the schemas that values were written by."""

    table: AnyTable
    ways: Mapping[str, Mapping[int, _Way]]

    @staticmethod
    def of(table: AnyTable, registry: Mapping[int, RegisteredSchema]) -> _Opener:
        return _Opener(table, {c: dict(_ways(table.set_by[c], registry)) for c in table.personal})

    def open(self, rows: pa.Table, keys: FollowedKeys) -> pa.Table:
        cells = [cell for column in self.table.personal for cell in self._cells(column, rows)]
        clear = PersonalData(keys).opened(
            [SealedField.from_state(w.schema, w.written, sealed) for _, _, w, sealed in cells]
        )
        values = {column: rows[column].to_pylist() for column in self.table.personal}
        for (column, place, way, _), value in zip(cells, clear, strict=True):
            values[column][place] = way.upcast(value)
        columns = [_array(values[c], rows.schema.field(c).type) if c in values else rows[c] for c in self.table.opened]
        return pa.table(columns, names=list(self.table.opened))

    def _cells(self, column: str, rows: pa.Table) -> Iterator[tuple[str, int, _Way, bytes]]:
        sealed, _, schema = (rows[part].to_pylist() for part in sealed_parts(column))
        ways = self.ways[column]
        for place, (value, schema_id) in enumerate(zip(sealed, schema, strict=True)):
            if value is not None:
                if schema_id not in ways:
                    raise unknown_schema(schema_id, place=f"column {column}")
                yield column, place, ways[schema_id], value


def _ways(setters: Sequence[Setter], registry: Mapping[int, RegisteredSchema]) -> Iterator[tuple[int, _Way]]:
    for setter in setters:
        for schema in registry.values():
            if schema.name in setter.event.stored_names and setter.field is not None:
                for written in _written(schema, setter.event, setter.field):
                    yield schema.id, _Way(schema, written, setter.event, setter.field)


def _written(schema: RegisteredSchema, kind: EventType, field: str) -> list[str]:
    """The personal field of a schema that is a current field, if there is one."""
    if not kind.upcasters.declared_from(schema.version):
        return []  # refused where records are reduced
    followed = kind.upcasters.interpret(schema.version, {name: name for name in schema.personal}, _Names())
    return [followed[field]] if followed.get(field) in schema.personal else []


class _Names:
    """Fields under their writers' names, whatever becomes of their values."""

    def constant(self, value: Any, avro: Any) -> str:
        """No field's name."""
        return ""

    def cast(self, value: str, to: Any, field: str) -> str:
        """The same field."""
        return value

    def taken(self, field: str, to: str) -> InvalidEventData:
        """The error for a name that another field has."""
        return name_taken(field, to, to)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Plain values in the Arrow form their column has; a store gives decimals as text."""
    plain: Callable[[Any], Any] = _text if pa.types.is_string(kind) else (lambda value: value)
    return pa.array([None if value is None else plain(value) for value in values], kind)


def _text(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)
