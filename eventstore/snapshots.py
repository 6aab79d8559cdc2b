"""Aggregate snapshots: a state as it was at a version, so that loading an aggregate folds only what came after.

A snapshot is framed Avro, as an event is. Its schema is made of the aggregate's state fields, so the schema's id is the
state's shape: a snapshot of another shape is ignored and overwritten in time, and never migrated, since the events can
always tell. They are the truth; a snapshot may be lost at any time.

Aggregates with personal events have none: it would hold in clear what their events hold sealed, and a command that was
under way during an erasure would store it again (ADR 0029).
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import structlog

from eventstore.errors import DeclarationError, InvalidEventData, StoreUnavailable
from eventstore.fields.conversions import MISFITS
from eventstore.fields.field_compilation import compile_hints
from eventstore.fields.field_types import Field
from eventstore.identifiers import StreamName, require_like
from eventstore.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    from eventstore.aggregates.aggregate import Aggregate
    from eventstore.fields.serialization import AvroDecoder, AvroEncoder

A = TypeVar("A", bound="Aggregate")

# A hundred small events are read and folded in some milliseconds; a snapshot saves no more than that.
EVERY: Final = 100

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AggregateSnapshot:
    """The state of a stream's aggregate at a version, as framed Avro.

    Examples:
        >>> store.snapshot("order-o1").version
        99
    """

    stream: str
    version: int
    payload: bytes


class SnapshotStore(Protocol):
    """Stores at most one aggregate snapshot for each stream.

    Examples:
        >>> snapshots: SnapshotStore = SqlEventStore("sqlite:///shop.db")
    """

    def snapshot(self, stream: str) -> AggregateSnapshot | None:
        """Return a stream's snapshot, None without one. Raises StoreUnavailable."""

    def save_snapshot(self, snapshot: AggregateSnapshot) -> None:
        """Store a snapshot, unless a newer one of the same shape exists. Raises StoreUnavailable."""


class Snapshots:
    """Takes aggregate snapshots, and loads aggregates from the newest one and the events after it.

    An aggregate with personal events is loaded from its events. A warning says this once, when the first snapshot is
    due.

    Args:
        store: Where snapshots are stored.
        every: The number of events of a stream between two snapshots.
        cached: The number of states in memory, those used last. Other processes may write the same streams.

    Examples:
        >>> service = Dispatcher(store, snapshots=Snapshots(store, every=100))
    """

    def __init__(self, store: SnapshotStore, *, every: int = EVERY, cached: int = 0) -> None:
        require_like(store, "save_snapshot", "store", takes="an event store")
        self._store = store
        self._every = every
        self._cache = _Cache(cached)
        self._warned: set[type] = set()

    def latest(self, kind: type[A], stream: StreamName, *, cached: bool = True) -> A | None:
        """Return a state to go on from, or None. The caller may change it.

        Args:
            kind: The aggregate.
            stream: The stream.
            cached: Use a state in memory. False forgets it, as after a lost race: a restored backup may be older.

        Raises:
            UnsupportedFieldType: A field of the state has no Avro type.
        """
        if has_personal_events(kind):  # a snapshot of an earlier release would outlive an erasure
            return None
        if not cached:
            self._cache.drop(str(stream))
        elif (known := self._cache.get(kind, str(stream))) is not None:
            return known
        snapshot = self._store.snapshot(str(stream))
        return None if snapshot is None else shape_of(kind).restored(kind, stream, snapshot)

    def passed(self, state: Aggregate, *, before: int) -> None:
        """Note the state after an append to a stream that stood at ``before``. The state must not change any more."""
        due = (state.version + 1) // self._every > (before + 1) // self._every
        if has_personal_events(type(state)):
            if due:
                self._warn(type(state))
            return
        self._cache.put(str(state.stream), state)
        if due:
            self._keep(state)

    def take(self, state: Aggregate) -> None:
        """Take a snapshot now.

        Raises StoreUnavailable or UnsupportedFieldType. Raises DeclarationError if events are personal.
        """
        if has_personal_events(type(state)):
            raise DeclarationError(
                f"{type(state).__qualname__} has personal events, and an aggregate snapshot would outlive an erasure",
                remedy="load it from its events. If its streams grow long, move personal fields to an aggregate of "
                "their own, or remove Personal() from fields that are not personal",
                place=type(state).__qualname__,
            )
        payload = shape_of(type(state)).encode(state)
        self._store.save_snapshot(AggregateSnapshot(str(state.stream), state.version, payload))

    def _keep(self, state: Aggregate) -> None:
        try:
            self.take(state)
        except (StoreUnavailable, InvalidEventData) as error:
            # The events are appended: this must not look like a failed append.
            log.warning("aggregate snapshot not stored", stream=str(state.stream), cause=error.message)

    def _warn(self, kind: type[Aggregate]) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("no aggregate snapshots: they would outlive an erasure", aggregate=kind.__qualname__)


def has_personal_events(kind: type[Aggregate]) -> bool:
    """Say whether the state of an aggregate may hold what was sealed in its events."""
    return any(event_type.personal for event_type in kind.event_types.values())


class _Cache:
    """The states used last; safe for threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._states: OrderedDict[str, Aggregate] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, kind: type[A], stream: str) -> A | None:
        with self._lock:
            known = self._states.get(stream)
            if known is None or type(known) is not kind:
                return None
            self._states.move_to_end(stream)
        # The cache owns the state it holds and returns copies: deciding changes a state.
        return copy.deepcopy(known)

    def drop(self, stream: str) -> None:
        with self._lock:
            self._states.pop(stream, None)

    def put(self, stream: str, state: Aggregate) -> None:
        if not self._size:
            return
        with self._lock:
            known = self._states.get(stream)
            if known is None or known.version < state.version:
                self._states[stream] = state
            self._states.move_to_end(stream)
            if len(self._states) > self._size:
                self._states.popitem(last=False)


class StateShape:
    """An aggregate's state fields and their way to Avro and back; UnsupportedFieldType names one that has none."""

    def __init__(self, kind: type[Aggregate]) -> None:
        self._owner = kind.__qualname__
        self._fields: tuple[Field, ...] = compile_hints(
            kind.state_fields(), owner=kind.__qualname__, namespace=kind.category
        )
        self._registered = RegisteredSchema.of(
            {
                "type": "record",
                "namespace": kind.category,
                "name": "aggregate_state",
                "fields": [{"name": field.name, "type": field.type.avro} for field in self._fields],
                "state_version": kind.state_version,
            }
        )

    @property
    def id(self) -> int:
        """The fingerprint of names and types, in their order, and of the version the aggregate gives its state."""
        return self._registered.id

    def encode(self, state: Aggregate) -> bytes:
        """Return the state as framed Avro; InvalidEventData names a field whose value does not fit its type."""
        values = state.state()
        return self._encoder.encode({one.name: self._plain(one, values[one.name]) for one in self._fields})

    def _plain(self, field: Field, value: Any) -> Any:
        remedy = "give the field a value of its declared type, or declare the type of its values"
        return field.converted(field.type.plain, value, "state field", owner=self._owner, remedy=remedy)

    def restored(self, kind: type[A], stream: StreamName, snapshot: AggregateSnapshot) -> A | None:
        """Return the state of a snapshot, None where that is of another shape or holds what no field can."""
        from eventstore.fields.serialization import schema_id_of  # fastavro is loaded with the first value

        if schema_id_of(snapshot.payload) != self.id:
            return None
        _, values = self._decoder.decode(snapshot.payload)
        try:
            fields = {field.name: field.type.opened(values[field.name]) for field in self._fields}
        except (InvalidEventData, *MISFITS) as error:  # the events can tell what the state is
            log.warning("aggregate snapshot ignored", stream=str(stream), cause=str(error))
            return None
        return kind.restored(fields, id=stream.id, version=snapshot.version)

    @cached_property
    def _encoder(self) -> AvroEncoder:
        from eventstore.fields.serialization import AvroEncoder  # fastavro is loaded with the first value

        return AvroEncoder(self._registered)

    @cached_property
    def _decoder(self) -> AvroDecoder:
        from eventstore.fields.serialization import AvroDecoder  # fastavro is loaded with the first value

        return AvroDecoder(lambda _: self._registered)


_SHAPES: dict[type, StateShape] = {}


def shape_of(kind: type[Aggregate]) -> StateShape:
    """Return the shape of an aggregate's state; UnsupportedFieldType."""
    return _SHAPES.get(kind) or _SHAPES.setdefault(kind, StateShape(kind))
