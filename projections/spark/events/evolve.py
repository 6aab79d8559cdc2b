"""Events folded by the aggregate's own Python: one sorted pass over each partition.

The JVM decodes and sorts; a Python worker sees every stream's events together, in version order, and calls ``evolve``
for each. One call a group (``groupBy.applyInArrow``) was measured 12 times slower than this.
"""

from __future__ import annotations

import enum
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eventstore.aggregates.aggregate import Aggregate
from eventstore.fields.conversions import Convert
from eventstore.schema_registry import RegisteredSchema
from projections.declaring.columns import ColumnType, field_type
from projections.declaring.tables import EventTable
from projections.spark.events.decode import Decoder, column_of, stream_of_key
from projections.spark.events.fold import STAGING, OfStreams, key_column
from projections.spark.events.plain_values import plain_values
from projections.spark.nesting import as_stored, opened_up
from projections.spark.python_workers import settled
from projections.spark.table_kind import Fold, Registry, Step

_LONG = ColumnType("long")
_META = {"_epoch": _LONG, "_pos": _LONG, "_offset": _LONG, "_deleted": ColumnType("boolean"), "_first": _LONG}
_ROWS = 5_000  # rows collected before they leave as one Arrow batch: a few hundred kB


class EvolvedFold(OfStreams[EventTable]):
    """The aggregate's own `evolve` folds in Python workers, on from the stored rows."""

    as_written = True

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`."""
        decoder = self.decoder(registry)
        return decoder.prepare(), _evolved_fold(self.table, decoder)

    def keys_of(self, raw: DataFrame) -> DataFrame:
        """The distinct keys of the streams that raw event records belong to."""
        identity = F.substring(stream_of_key(), len(self.table.category) + 2, 1 << 20)
        return raw.select(identity.alias(self.table.key[0])).distinct()


def _evolved_fold(table: EventTable, decoder: Decoder) -> Fold:
    """From decoded records to one row a stream: the aggregate's state after the range.

    Its second argument holds the state rows of the streams in the range (key, state columns, ``_pos``), or is None
    where there is no state yet. Events at or below the stored version are passed over.
    """
    key, events = key_column(table), ["_stream", "_version", "_at_offset", "_type", *map(column_of, decoder.schemas)]
    ddl = ", ".join(["_stream string", *(f"`{c}` {table.columns[c].opened}" for c in table.payload)])
    payload = [_stored(c, table.columns[c]) for c in table.payload]
    meta = ", ".join(f"{name} {column.ddl}" for name, column in _META.items())
    evolver = _evolver(table, {column_of(s): s for s in decoder.schemas})

    def fold(records: DataFrame, stored: DataFrame | None) -> DataFrame:
        decoded = records.select(*events)
        if stored is not None:
            decoded = _with_stored(decoded, table, stored)
        # The deletion of a stream comes first: events before it may be incomplete, and are not evolved.
        one_pass = _by_stream(decoded).sortWithinPartitions("_stream", F.col("_type").isNotNull(), "_version")
        return one_pass.mapInArrow(settled(evolver), f"{ddl}, {meta}").select(key, *payload, *STAGING)

    return fold


def _by_stream(decoded: DataFrame) -> DataFrame:
    """A stream's events in one task; a small batch is one task as it is."""
    small = decoded.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    return decoded if small else decoded.repartition("_stream")


def _with_stored(decoded: DataFrame, table: EventTable, stored: DataFrame) -> DataFrame:
    stream = F.concat(F.lit(f"{table.aggregate.category}-"), F.col(table.key[0])).alias("_stream")
    state = opened_up(stored, table.columns).select(stream, F.struct("_pos", *table.payload).alias("_stored"))
    return decoded.join(state, "_stream", "left")


def _stored(name: str, column: ColumnType) -> Column:
    return as_stored(F.col(name), column.shape).alias(name) if column.shape else F.col(name)


def _evolver(
    table: EventTable, schemas: Mapping[str, RegisteredSchema]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    schema = _row_schema(table)  # made here: Spark's types want the driver

    def evolve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fold, kinds = _Fold(table), table.aggregate.stored_types()
        columns = {column: _Column(schema.version, plain_values(schema)) for column, schema in schemas.items()}
        for batch in batches:
            for stream, version, offset, (written, values), name, stored in _events(batch, columns):
                events = None if name is None else partial(kinds[name].events, written, values)
                fold.add(stream, version, offset, events, stored)
            if len(fold.rows) >= _ROWS:
                yield fold.take(schema)
        fold.finish_stream()
        yield fold.take(schema)

    return evolve


@dataclass(frozen=True, slots=True)
class _Column:
    """The writer's version of a column's events, and what makes their values plain."""

    version: int
    plain: Convert | None


def _events(batch: pa.RecordBatch, columns: Mapping[str, _Column]) -> Iterator[tuple[Any, ...]]:
    """The events of a batch: stream, version, offset, (writer's version, plain values), stored name, stored state."""
    names = batch.schema.names
    decoded = [_plain_rows(batch.column(name), column) for name, column in columns.items()]
    versions = [column.version for column in columns.values()]
    values = (
        next(((written, v) for written, v in zip(versions, row, strict=True) if v is not None), (0, None))
        for row in zip(*decoded, strict=True)
    )
    known = batch.column("_stored").to_pylist(maps_as_pydicts="strict") if "_stored" in names else None
    stored = known or [None] * batch.num_rows
    plain = (batch.column(c).to_pylist() for c in ("_stream", "_version", "_at_offset"))
    return zip(*plain, values, batch.column("_type").to_pylist(), stored, strict=True)


def _plain_rows(values: pa.Array, column: _Column) -> list[Any]:
    rows: list[Any] = values.to_pylist(maps_as_pydicts="strict")
    return rows if column.plain is None else [column.plain(row) for row in rows]


def _row_schema(table: EventTable) -> pa.Schema:
    """The Arrow schema of folded rows."""
    payload = [(column, _arrow(table.columns[column])) for column in table.payload]
    return pa.schema([("_stream", pa.string()), *payload, *((name, c.arrow()) for name, c in _META.items())])


def _arrow(column: ColumnType) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    return to_arrow_type(DataType.fromDDL(column.shape), timezone="UTC") if column.shape else column.arrow()


class _Fold:
    """The state of the stream at hand, and the rows of the streams before it."""

    def __init__(self, table: EventTable) -> None:
        self.rows: list[dict[str, Any]] = []
        self._aggregate = aggregate = table.aggregate
        annotations = aggregate.state_fields()
        nested = {c: field_type(annotations[c], place=c) for c in table.payload if table.columns[c].shape}
        self._plain = {c: kind.to_plain or (lambda value: value) for c, kind in nested.items()}
        self._restore = {c: r for c, t in annotations.items() if (r := _restorer(t))}
        self._restore |= {c: kind.from_plain for c, kind in nested.items() if kind.from_plain}
        self._stream: str | None = None
        self._known = -1
        self._broken = False
        self._state: Aggregate = aggregate.initial_state()
        self._meta: dict[str, Any] = {}

    def add(
        self,
        stream: str,
        version: int,
        offset: int,
        events: Callable[[], list[Any]] | None,
        stored: Mapping[str, Any] | None,
    ) -> None:
        """Evolve by what a record is today, unless the state has seen its version already; None deletes the stream."""
        if stream != self._stream:
            self.finish_stream()
            self._begin(stream, offset, stored)
        meta = self._meta
        meta["_deleted"] |= events is None  # at whatever version: a stream is deleted as a whole
        if version > meta["_pos"]:
            if version > meta["_pos"] + 1:
                # What follows a gap is refused once it is staged, and the aggregate's own code never made for it.
                self._broken, meta["_first"] = True, version
            meta["_pos"] = version
            if events is not None and not meta["_deleted"] and not self._broken:
                for event in events():
                    self._aggregate.evolve(self._state, event)
        if offset > meta["_offset"]:
            meta["_offset"] = offset

    def _begin(self, stream: str, offset: int, stored: Mapping[str, Any] | None) -> None:
        self._stream, self._broken = stream, False
        identity = stream[len(self._aggregate.category) + 1 :]
        if stored is None:
            known, self._state = -1, self._aggregate.initial_state(identity)
        else:
            known = stored["_pos"]
            values = {c: self._restored(c, v) for c, v in stored.items() if c != "_pos"}
            self._state = self._aggregate.restored(values, id=identity, version=known)
        self._known = known
        self._meta = {"_epoch": 0, "_pos": known, "_offset": offset, "_deleted": False, "_first": known + 1}

    def _restored(self, column: str, value: Any) -> Any:
        restore = self._restore.get(column)
        return restore(value) if restore and value is not None else value

    def finish_stream(self) -> None:
        """Write the row of the stream at hand, unless every record of it was of an event that is known."""
        if self._stream is not None and (self._meta["_pos"] > self._known or self._meta["_deleted"]):
            values = {} if self._meta["_deleted"] else self._state.state()
            state = {c: self._plain.get(c, _plain)(v) for c, v in values.items()}
            self.rows.append({"_stream": self._stream, **state, **self._meta})
        self._stream = None

    def take(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows so far, as one Arrow batch."""
        rows, self.rows = self.rows, []
        return pa.RecordBatch.from_pylist(rows, schema=schema)


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    return str(value) if isinstance(value, uuid.UUID) else value


def _restorer(annotation: Any) -> Callable[[Any], Any] | None:
    """How a state field of a type without a column of its own comes back from its text."""
    members = [annotation, *typing.get_args(annotation)]
    for member in members:
        if isinstance(member, type) and issubclass(member, enum.Enum):
            return member.__getitem__
        if member is uuid.UUID:
            return uuid.UUID
    return None
