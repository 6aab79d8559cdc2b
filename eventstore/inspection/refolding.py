"""Every stream of an aggregate, folded again by the present code, with what that code cannot take in.

Events come in the order of the store, and each stream has its state until the end. Personal values are placeholders:
no key is needed, and no error shows a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import KeysMissing
from eventstore.identifiers import StreamName
from eventstore.processes.process import impersonal
from eventstore.snapshots import AggregateSnapshot, has_personal_events, shape_of
from eventstore.store import RecordedEvent

if TYPE_CHECKING:
    from eventstore.backends.sql.store import SqlEventStore

NO_SNAPSHOTS: Final[Mapping[str, AggregateSnapshot]] = MappingProxyType({})
_EACH: Final = 1000


@dataclass(slots=True)
class Failure:
    """Why the code cannot take in events of one type and schema.

    Attributes:
        error: What was raised for the first of these events.
        first: That event.
        folding: The event could be read, and a handler of the aggregate raised.
        personal: The event has personal values, for which placeholders stood.
        events: How many events there are.
    """

    error: Exception
    first: RecordedEvent
    folding: bool
    personal: bool
    events: int = 0


def refolded(
    store: SqlEventStore,
    kind: type[Aggregate],
    snapshots: Mapping[str, AggregateSnapshot] = NO_SNAPSHOTS,
    *,
    limit: int | None = None,
    tell: Callable[[int], None] = lambda events: None,
) -> Refolding:
    """Fold the streams of an aggregate in one read of its category, or its first events up to a limit.

    `tell` is called now and then with the number of events that were read. Raises StoreUnavailable, StoreNotPrepared
    or UnknownSchema.

    Examples:
        >>> refolded(store, Order, snapshots_of(store, "order")).failures
        []
    """
    folding = Refolding(kind, snapshots)
    for event in store.read_all(category=kind.category, limit=limit):
        folding.take(event)
        if folding.events % _EACH == 0:
            tell(folding.events)
    return folding


class Refolding:
    """The streams of one aggregate, event by event. With ``opened``, personal values are taken as the store shows them.

    Attributes:
        states: The states by stream, without those of streams that could not be folded.
        failures: Why events could not be taken in, each cause once.
        broken: The streams that could not be folded.
        outdated: The snapshots whose state is not the one that the code folds, by stream.
        ignored: How many snapshots have another shape: they are not used.
        events: How many events were taken.
    """

    def __init__(
        self, kind: type[Aggregate], snapshots: Mapping[str, AggregateSnapshot], *, opened: bool = False
    ) -> None:
        self._kind, self._opened = kind, opened
        self._snapshots = {} if has_personal_events(kind) else snapshots
        self._failures: dict[tuple[Any, ...], Failure] = {}
        self.states: dict[str, Aggregate] = {}
        self.broken: set[str] = set()
        self.outdated: list[str] = []
        self.ignored = self.events = 0

    @property
    def failures(self) -> list[Failure]:
        """Why events could not be taken in, the most frequent cause first."""
        return sorted(self._failures.values(), key=lambda failure: -failure.events)

    def take(self, event: RecordedEvent) -> None:
        """Let a stream's state evolve by its next event. What the code raises becomes a failure."""
        self.events += 1
        folding, data = False, event.data
        try:
            kind = self._kind.stored_type(event.type)
            data = data if self._opened else impersonal(kind, data)
            present = kind.events(event.schema_version, data)
            folding = True
            if event.stream not in self.broken:
                self._evolve(event, present)
        except KeysMissing:
            raise
        except Exception as error:  # whatever an upcaster or a handler raises
            self._failed(event, error, folding=folding, personal=data is not event.data)

    def _evolve(self, event: RecordedEvent, present: Sequence[object]) -> None:
        state = self.states.get(event.stream)
        if state is None:
            state = self.states[event.stream] = self._kind.initial_state(StreamName.parse(event.stream).id)
        for one in present:
            self._kind.evolve(state, one)
        state.version = event.version
        if (snapshot := self._snapshots.get(event.stream)) is not None and snapshot.version == event.version:
            self._compare(state, snapshot)

    def _failed(self, event: RecordedEvent, error: Exception, *, folding: bool, personal: bool) -> None:
        self.broken.add(event.stream)
        self.states.pop(event.stream, None)
        cause = (event.type, event.schema_id, folding, type(error), getattr(error, "place", None))
        failure = self._failures.setdefault(cause, Failure(error, event, folding, personal))
        failure.events += 1

    def _compare(self, state: Aggregate, snapshot: AggregateSnapshot) -> None:
        restored = shape_of(self._kind).restored(self._kind, state.stream, snapshot)
        if restored is None:
            self.ignored += 1
        elif restored.state() != state.state():
            self.outdated.append(snapshot.stream)
