"""The store read directly by a subscription, without Kafka: the embedded road.

Its place is a checkpoint row (group, topic and store → order_xid, position) in the handler's database, advanced in the
transaction of the handler's effects. It advances from where this reader began its batch: a second subscriber of the
group, which would deliver the same events, finds it moved and ends.

Several categories are read in the store's own order, each with a row of its own: one that a subscription names later
begins at its start, and the others go on. Behind a batch all of them stand at its last event.

Where a group stands in a store, in the handler's database, under a name that no other store has.

One subscription may be delivered from the stores of several tenants. Each has its own positions, so each has its own
checkpoint and its own events in the inbox: their name is the topic for a store in its database's default schema,
and `topic@schema` for another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from eventstore.backends.sql.dialect import blaming_no_record, transaction
from eventstore.backends.sql.letter_rows import LetterReplays, dead_letters_table
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.values import keys, needed
from eventstore.backends.sql.ways import create_missing, upsert
from eventstore.delivery.source import DeadLetter, Lag, PartitionLag, Source
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import CheckpointMoved, DeclarationError, FactfoldError
from eventstore.identifiers import Position, check_category
from eventstore.store import RecordedEvent
from eventstore.topics import require_source

# Before every event, those below zero too that were renumbered after a restore.
BEFORE_ALL: Final = Position(-(1 << 62), 0)


def checkpoint_name(topic: str, store: SqlEventStore, engine: sa.Engine) -> str:
    """Return the name under which a store's events of a topic are stored in the database of an engine.

    SQLite has no schemas: in a shared database, the prefix of their topics separates its tenants.
    """
    elsewhere = _database(engine) != _database(store.engine)
    name = store.tables.schema or (store.topic_prefix if elsewhere else "")
    return f"{topic}@{name}" if name else topic


def _database(engine: sa.Engine) -> tuple[object, ...]:
    return engine.url.host, engine.url.port, engine.url.database


class Checkpoints:
    """The place of one group in one category of a store, advanced from where its reader began."""

    def __init__(self, store: SqlEventStore, group: str, topic: str, *, engine: sa.Engine) -> None:
        self._engine, self._group = engine, group
        self.checkpoint_name = checkpoint_name(topic, store, engine)
        self._metadata = sa.MetaData()
        self._table = _checkpoints(self._metadata)
        self.dead_letters = dead_letters_table(self._metadata)

    def open(self) -> Position | None:
        """Return the stored place. Create the missing tables."""
        with transaction(self._engine) as tx:
            create_missing(tx, self._metadata)
            return self.stored(tx)

    def stored(self, tx: sa.Connection) -> Position | None:
        """Return the group's place in the store."""
        columns = self._table.c
        query = sa.select(columns.order_xid, columns.position)
        row = tx.execute(query.where(columns.subscriber == self._group, columns.topic == self.checkpoint_name)).first()
        return None if row is None else Position(*row)

    def looked_up(self) -> Position | None:
        """Return the group's place, None without one, in a database that may not have the table yet."""
        with transaction(self._engine) as tx:
            return self.stored(tx) if sa.inspect(tx).has_table(self._table.name) else None

    def advance(self, tx: sa.Connection, before: Position | None, after: Position) -> None:
        """Move the place; CheckpointMoved where it is not `before`."""
        columns, values = self._table.c, {"order_xid": after.order_xid, "position": after.position}
        statement: sa.UpdateBase
        if before is None:
            key = {"subscriber": self._group, "topic": self.checkpoint_name}
            statement = upsert(tx, self._table).values(**key, **values).on_conflict_do_nothing()
        else:
            stands = (columns.order_xid == before.order_xid, columns.position == before.position)
            own = (columns.subscriber == self._group, columns.topic == self.checkpoint_name)
            statement = sa.update(self._table).where(*own, *stands).values(values)
        with blaming_no_record(tx.engine):
            # Of an INSERT, SQLAlchemy keeps the count only where it is asked to.
            moved = tx.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
        if moved != 1:
            raise CheckpointMoved(
                f"another subscriber of group {self._group!r} advanced its checkpoint",
                remedy="run one subscriber a group on a store. On Kafka members share the partitions",
                place=f"{self.checkpoint_name} {self._group}",
            )


def _checkpoints(metadata: sa.MetaData) -> sa.Table:
    place = needed(sa.BigInteger, "order_xid", "position")
    return sa.Table("factfold_checkpoints", metadata, *keys("subscriber", "topic"), *place)


# How soon an event is seen once it is behind the fence; one indexed query each time.
_GLANCE_SECONDS: Final = 0.05


# The position of the last event that was seen of each category, None before the first.
Places: TypeAlias = "Mapping[str, Position | None]"


@dataclass(frozen=True, slots=True)
class StoreArrival:
    """One event; `before` are the places before it, by category. Without a type it is not of the branch.

    `again` is the replay of a dead letter that it is: no place moves with it.
    """

    event: RecordedEvent
    before: Places
    type: str | None
    problem: FactfoldError | None = None
    again: UUID | None = None

    @property
    def category(self) -> str:
        """The category of its stream."""
        return self.event.stream.partition("-")[0]

    @property
    def retries(self) -> int:
        """Nothing is put off here."""
        return 0

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


class StoreSource(Source[StoreArrival]):
    """Categories of a store as the source of a subscription, or a branch of them: the events `branch` says yes to.

    `category` is that of the subscription's topic, or a list of those of its topics, in the same order.
    `engine` is that of the handler's database, the store's own by default. With a `source`, the subscription's own by
    default, an event of another service is not readable. One subscriber a group at a time.

    Examples:
        >>> source = StoreSource(store, review, category="payment", branch=lambda event: event.data["amount"] > 250)
    """

    def __init__(
        self,
        store: SqlEventStore,
        subscription: Subscription[..., Any],
        *,
        category: str | Sequence[str],
        branch: Callable[[RecordedEvent], bool] | None = None,
        engine: sa.Engine | None = None,
        source: str | None = None,
    ) -> None:
        _require_no_topics(subscription)
        self._store = store
        self._source = source or subscription.source
        self._subscription = subscription
        self._branch = branch or (lambda event: True)
        self._engine = engine or store.engine
        self._checkpoints = {
            category: Checkpoints(store, subscription.group, topic, engine=self._engine)
            for category, topic in _topics(subscription, category).items()
        }
        self._reached: Places = {}
        names = [checkpoint.checkpoint_name for checkpoint in self._checkpoints.values()]
        self._replays = LetterReplays(store, self._engine, subscription.group, names)

    def checkpoint_name(self, arrival: StoreArrival) -> str:
        """Return the topic. With the store's schema behind it where that is not the default one."""
        return self._checkpoints[arrival.category].checkpoint_name

    def key_of(self, arrival: StoreArrival) -> str:
        """Return the event's stream."""
        return arrival.event.stream

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Find the group's checkpoint, or store the place to start at. Makes the tables that are missing.

        Stored at once, even in an empty category: the next subscriber must not begin at a later end.
        """
        self._reached = {category: self._begun(category) for category in self._checkpoints}
        self._replays.open()

    def poll(self, timeout: float) -> Sequence[StoreArrival]:
        """Return dead letters that are to be replayed, else the next events behind the fence. At most a batch.

        Nothing after `timeout` seconds.
        """
        if replayed := self._replayed():
            return replayed
        until = time.monotonic() + timeout
        while not (arrivals := self._next()) and time.monotonic() < until:
            time.sleep(min(_GLANCE_SECONDS, timeout))
        return arrivals

    def checkpoint(self, tx: sa.Connection, arrivals: Sequence[StoreArrival]) -> None:
        """Move the checkpoint behind these events, or end their replays.

        Raises CheckpointMoved if another subscriber did.
        """
        if replays := [arrival.again for arrival in arrivals if arrival.again is not None]:
            self._replays.handled(tx, replays)
            return
        before, after = arrivals[0].before, _behind(arrivals[-1])
        for category, place in before.items():
            if place != after[category]:
                self._checkpoints[category].advance(tx, place, after[category])

    def take(self, arrivals: Sequence[StoreArrival]) -> Sequence[StoreArrival]:
        """Move the checkpoint before the events are handled. Raises CheckpointMoved."""
        with transaction(self._engine) as tx:
            self.checkpoint(tx, arrivals)
        return arrivals

    def acknowledge(self, arrivals: Sequence[StoreArrival]) -> None:
        """Move the checkpoint, unless it moved in the handler's own transaction."""
        if not self._subscription.stores_place:
            with transaction(self._engine) as tx:
                self.checkpoint(tx, arrivals)

    def give_back(self, arrivals: Sequence[StoreArrival]) -> None:
        """Read on from before these events. Replays wait until they are ended."""
        if arrivals[0].again is not None:
            return
        self._reached = arrivals[0].before
        if self._subscription.at_most_once:
            self._move_back(arrivals)

    def _move_back(self, arrivals: Sequence[StoreArrival]) -> None:
        """Give the places back that `take` moved behind events which were not handled."""
        back = {category: place or BEFORE_ALL for category, place in arrivals[0].before.items()}
        self._reached, moved = back, _behind(arrivals[-1])
        with transaction(self._engine) as tx:
            for category, place in back.items():
                if place != moved[category]:
                    self._checkpoints[category].advance(tx, moved[category], place)

    def dead_letter(self, letter: DeadLetter[StoreArrival]) -> None:
        """Store why an event was given up, in `factfold_dead_letters`. The event itself stays in the store."""
        event = letter.arrival.event
        row = {
            "subscriber": letter.group,
            "event_id": event.id,
            "topic": self.checkpoint_name(letter.arrival),
            "stream": event.stream,
            "version": event.version,
            "error": type(letter.error).__name__,
            "message": letter.message,
            "attempts": letter.attempts,
            "time": letter.time,
        }
        key = ["subscriber", "topic", "event_id"]
        updates = {name: value for name, value in row.items() if name not in key}
        with transaction(self._engine) as tx:
            statement = upsert(tx, self._checkpoints[letter.arrival.category].dead_letters).values(row)
            tx.execute(statement.on_conflict_do_update(index_elements=key, set_=updates))
            if letter.arrival.again is not None:
                self._replays.died(tx, letter.arrival.again)

    def lag(self) -> Lag:
        """Return how many events of each category wait, those of other branches included."""
        return Lag(tuple(self._lag(category) for category in self._checkpoints))

    def _lag(self, category: str) -> PartitionLag:
        checkpoint = self._checkpoints[category]
        with transaction(self._engine) as tx:
            place = checkpoint.stored(tx)
        return _waiting(self._store, checkpoint, place, category)

    def _replayed(self) -> list[StoreArrival]:
        waiting = self._replays.waiting(limit=1 if self._subscription.at_most_once else self._subscription.batch)
        sources = self._sources([replay.event for replay in waiting])
        arrivals = (self._arrival(replay.event, sources) for replay in waiting)
        return [replace(one, before={}, again=replay.id) for one, replay in zip(arrivals, waiting, strict=True)]

    def _next(self) -> list[StoreArrival]:
        events = self._store.read_categories(self._reached, limit=self._subscription.batch)
        sources = self._sources(events)
        arrivals = []
        for event in events:
            arrivals.append(self._arrival(event, sources))
            self._reached = _behind(arrivals[-1])
        return arrivals

    def _sources(self, events: Sequence[RecordedEvent]) -> Mapping[UUID, str]:
        """Ask for the sources of events where one is declared; most polls find none to ask for."""
        return self._store.sources_of([event.id for event in events]) if self._source is not None and events else {}

    def _arrival(self, event: RecordedEvent, sources: Mapping[UUID, str]) -> StoreArrival:
        before = self._reached
        try:
            if self._source is not None and event.id in sources:  # which an event that was deleted meanwhile is not
                place = f"{event.stream}@{event.version}"
                require_source([("ce_source", sources[event.id].encode())], self._source, place=place)
            matches = self._branch(event)
        except FactfoldError as problem:  # its branch is unknown: an operator has to look at it
            return StoreArrival(event, before, event.type, problem)
        return StoreArrival(event, before, event.type if matches else None)

    def _begun(self, category: str) -> Position | None:
        checkpoint = self._checkpoints[category]
        reached = checkpoint.open()
        if reached is None and (start := self._start(category)) is not None:
            with transaction(self._engine) as tx:
                checkpoint.advance(tx, None, start)
            return start
        return reached

    def _start(self, category: str) -> Position | None:
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
        return self._store.last_position(category, before=before) or BEFORE_ALL


def _topics(subscription: Subscription[..., Any], category: str | Sequence[str]) -> dict[str, str]:
    """Return the topic of each category; DeclarationError if there are not as many of both."""
    categories = [category] if isinstance(category, str) else list(category)
    if subscription.pattern is not None or len(set(categories)) != len(subscription.topics):
        raise DeclarationError(
            f"{subscription.name} reads {subscription.reads}, the store's categories {', '.join(categories)}",
            remedy="name one category for each topic, in the same order. A store has no patterns",
            place=subscription.name,
        )
    return {check_category(one): topic for one, topic in zip(categories, subscription.topics, strict=True)}


def _require_no_topics(subscription: Subscription[..., Any]) -> None:
    if subscription.share:
        raise DeclarationError(
            f"{subscription.name} shares records in a queue, which a store does not have",
            remedy="declare it by @subscription, or read a topic",
            place=subscription.name,
        )
    if subscription.retry:
        raise DeclarationError(
            f"{subscription.name} puts records off in a retry topic, which a store does not have",
            remedy="raise attempts= and backoff= instead of retry=, or read a topic",
            place=subscription.name,
        )


def _behind(arrival: StoreArrival) -> dict[str, Position]:
    """Return the places behind an event: what was seen of other categories ends there too."""
    position = arrival.event.position
    return {
        category: position if place is None or place < position else place for category, place in arrival.before.items()
    }


def stored_lag(store: SqlEventStore, group: str, topics: Mapping[str, str], *, engine: sa.Engine | None = None) -> Lag:
    """Return how many events of categories wait for a group, whether it has begun or not; makes no tables.

    `topics` has the topic of each category, as the group's subscription names it. StoreUnavailable.
    """
    own, lags = engine or store.engine, []
    for category, topic in topics.items():
        checkpoint = Checkpoints(store, group, topic, engine=own)
        lags.append(_waiting(store, checkpoint, checkpoint.looked_up(), category))
    return Lag(tuple(lags))


def _waiting(store: SqlEventStore, checkpoint: Checkpoints, place: Position | None, category: str) -> PartitionLag:
    count, oldest = store.backlog(place, category=category)
    age = 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())
    return PartitionLag(0, count, age, checkpoint.checkpoint_name)
