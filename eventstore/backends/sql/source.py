"""The store read directly by a subscription, without Kafka: the embedded road.

Its place is a checkpoint row (group, topic and store → order_xid, position) in the handler's database, advanced in the
transaction of the handler's effects. It advances from where this reader began its batch: a second subscriber of the
group, who would deliver the same events, finds it moved and ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Engine

from eventstore.backends.sql.checkpoints import BEFORE_ALL, Checkpoints
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.transactions import transaction
from eventstore.backends.sql.upserts import upsert
from eventstore.delivery.source import DeadLetter, Lag, PartitionLag
from eventstore.errors import DeclarationError, FactfoldError
from eventstore.identifiers import Position, check_category
from eventstore.messages import RecordedEvent
from eventstore.subscriptions import Subscription
from eventstore.topics import require_source

# How soon an event is seen once it is behind the fence; one indexed query each time.
_GLANCE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class StoreArrival:
    """One event of the category; `before` is the place before it. Without a type it is not of the branch."""

    event: RecordedEvent
    before: Position | None
    type: str | None
    problem: FactfoldError | None = None

    @property
    def id(self) -> str:
        """The event's id."""
        return self.event.id.hex

    @property
    def data(self) -> Mapping[str, Any]:
        """The event's fields as Avro gives them."""
        return self.event.data

    @property
    def schema_version(self) -> int:
        """The version of the class that wrote it."""
        return self.event.schema_version

    @property
    def place(self) -> str:
        """Stream and version."""
        return f"{self.event.stream}@{self.event.version}"

    def recorded(self) -> RecordedEvent:
        """Return the event."""
        return self.event


class StoreSource:
    """A category of a store as the source of a subscription, or one branch of it: the events `branch` says yes to.

    `engine` is that of the handler's database, the store's own by default. With a `source`, the subscription's own by
    default, an event of another service is not readable. One subscriber a group at a time.
    """

    def __init__(
        self,
        store: SqlEventStore,
        subscription: Subscription[..., Any],
        *,
        category: str,
        branch: Callable[[RecordedEvent], bool] | None = None,
        engine: Engine | None = None,
        source: str | None = None,
    ) -> None:
        self._store = store
        self._source = source or subscription.source
        self._subscription = subscription
        self._category = check_category(category)
        self._branch = branch or (lambda event: True)
        self._engine = engine or store.engine
        self._checkpoints = Checkpoints(store, subscription, category=self._category, engine=self._engine)
        self._reached: Position | None = None

    @property
    def kept_as(self) -> str:
        """The topic; with the store's schema behind it where that is not the default one."""
        return self._checkpoints.kept_as

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Find the group's checkpoint, or store the place to start at; makes the tables that are missing.

        Stored at once, even in an empty category: the next subscriber must not begin at a later end.
        """
        self._reached = self._checkpoints.open()
        if self._reached is None and (start := self._start()) is not None:
            with transaction(self._engine) as tx:
                self._checkpoints.advance(tx, None, start)
            self._reached = start

    def poll(self, timeout: float) -> Sequence[StoreArrival]:
        """Return the next events behind the fence, at most a batch; nothing after `timeout` seconds."""
        until = time.monotonic() + timeout
        while not (arrivals := self._next()) and time.monotonic() < until:
            time.sleep(min(_GLANCE_SECONDS, timeout))
        return arrivals

    def prepare(self) -> None:
        """Nothing: a page of the store is read quickly."""

    def keep_alive(self) -> None:
        """Nothing: there is no group to be thrown out of."""

    def checkpoint(self, tx: Connection, arrivals: Sequence[StoreArrival]) -> None:
        """Move the checkpoint behind these events; CheckpointMoved where another subscriber did."""
        self._checkpoints.advance(tx, arrivals[0].before, arrivals[-1].event.position)

    def acknowledge(self, arrivals: Sequence[StoreArrival]) -> None:
        """Move the checkpoint, unless it moved in the handler's own transaction."""
        if not self._subscription.signature.tx:
            with transaction(self._engine) as tx:
                self.checkpoint(tx, arrivals)

    def give_back(self, arrivals: Sequence[StoreArrival]) -> None:
        """Read on from before these events."""
        self._reached = arrivals[0].before

    def dead_letter(self, letter: DeadLetter[StoreArrival]) -> None:
        """Keep why an event was given up, in `factfold_dead_letters`; the event itself stays in the store."""
        event = letter.arrival.event
        row = {
            "subscriber": letter.group,
            "event_id": event.id,
            "topic": self.kept_as,
            "stream": event.stream,
            "version": event.version,
            "error": type(letter.error).__name__,
            "message": letter.message,
            "attempts": letter.attempts,
            "time": letter.time,
        }
        key = ["subscriber", "topic", "event_id"]
        told = {name: value for name, value in row.items() if name not in key}
        with transaction(self._engine) as tx:
            statement = upsert(tx, self._checkpoints.dead_letters).values(row)
            tx.execute(statement.on_conflict_do_update(index_elements=key, set_=told))

    def lag(self) -> Lag:
        """Return how many events of the category wait, those of other branches included."""
        with transaction(self._engine) as tx:
            count, oldest = self._store.waiting(self._checkpoints.stored(tx), category=self._category)
        age = 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())
        return Lag((PartitionLag(0, count, age),))

    def close(self) -> None:
        """Nothing: the store and the engine are the caller's."""

    def _next(self) -> list[StoreArrival]:
        found = self._store.read_all(after=self._reached, category=self._category, limit=self._subscription.batch)
        events = list(found)
        sources = {} if self._source is None else self._store.sources([event.id for event in events])
        return [self._arrival(event, sources) for event in events]

    def _arrival(self, event: RecordedEvent, sources: Mapping[UUID, str]) -> StoreArrival:
        before, self._reached = self._reached, event.position
        try:
            if self._source is not None and event.id in sources:  # which an event that was deleted meanwhile is not
                place = f"{event.stream}@{event.version}"
                require_source([("ce_source", sources[event.id].encode())], self._source, place=place)
            wanted = self._branch(event)
        except FactfoldError as problem:  # it cannot be told which branch it is of: somebody has to look at it
            return StoreArrival(event, before, event.type, problem)
        return StoreArrival(event, before, event.type if wanted else None)

    def _start(self) -> Position | None:
        start = self._subscription.start
        if isinstance(start, Mapping):
            raise DeclarationError(
                f"{self._subscription.name} starts at offsets, which a store does not have",
                remedy="start at beginning, end or a time, or read a topic",
                place=self._subscription.name,
            )
        if start == "beginning":
            return None
        before = start if isinstance(start, datetime) else None
        return self._store.last_position(self._category, before=before) or BEFORE_ALL
