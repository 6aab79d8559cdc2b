"""Where a group stands in a store, in the handler's database, under a name that no other store has.

One subscription may be delivered from the stores of several tenants. Each has its own positions, so each has its own
checkpoint and its own events in the inbox: their name is the topic for a store in its database's default schema,
and `topic@schema` for another one. Checkpoints and inboxes of releases before that lie under the topic alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    UpdateBase,
    and_,
    exists,
    inspect,
    select,
    update,
)

from eventstore.backends.sql.dead_letters import dead_letters_table, key_by_topic
from eventstore.backends.sql.transactions import blaming_no_record, transaction
from eventstore.backends.sql.ways import create_missing, upsert
from eventstore.errors import CheckpointMoved
from eventstore.identifiers import Position
from eventstore.inbox import inbox_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from eventstore.backends.sql.store import SqlEventStore

# So many ids any database takes in one statement.
_PART: Final = 500
# Before every event, those below zero too that were renumbered after a restore.
BEFORE_ALL: Final = Position(-(1 << 62), 0)


def checkpoint_name(topic: str, store: SqlEventStore, engine: Engine) -> str:
    """Return the name under which a store's events of a topic are stored in the database of an engine.

    SQLite has no schemas: in a shared database, the prefix of their topics separates its tenants.
    """
    elsewhere = _database(engine) != _database(store.engine)
    name = store.tables.schema or (store.topic_prefix if elsewhere else "")
    return f"{topic}@{name}" if name else topic


def _database(engine: Engine) -> tuple[object, ...]:
    return engine.url.host, engine.url.port, engine.url.database


class Checkpoints:
    """The place of one group in one category of a store, advanced from where its reader began."""

    def __init__(self, store: SqlEventStore, group: str, topic: str, *, category: str, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._category = category
        self._group, self._topic = group, topic
        self.checkpoint_name = checkpoint_name(topic, store, engine)
        self._metadata = MetaData()
        self._table = _checkpoints(self._metadata)
        self.dead_letters = dead_letters_table(self._metadata)

    def open(self) -> Position | None:
        """Return the stored place, or the one that an earlier release stored. Create the missing tables."""
        with transaction(self._engine) as tx:
            create_missing(tx, self._metadata)
            with blaming_no_record(tx.engine):
                key_by_topic(tx, self.dead_letters)
            position = self.stored(tx)
            if position is None and self.checkpoint_name != self._topic:
                position = self._take_over(tx)
        return position

    def stored(self, tx: Connection) -> Position | None:
        """Return the group's place in the store."""
        return self._under(tx, self.checkpoint_name)

    def looked_up(self) -> Position | None:
        """Return the group's place, None without one, in a database that may not have the table yet."""
        with transaction(self._engine) as tx:
            return self.stored(tx) if inspect(tx).has_table(self._table.name) else None

    def advance(self, tx: Connection, before: Position | None, after: Position) -> None:
        """Move the place; CheckpointMoved where it is not `before`."""
        columns, values = self._table.c, {"order_xid": after.order_xid, "position": after.position}
        statement: UpdateBase
        if before is None:
            key = {"subscriber": self._group, "topic": self.checkpoint_name}
            statement = upsert(tx, self._table).values(**key, **values).on_conflict_do_nothing()
        else:
            stands = (columns.order_xid == before.order_xid, columns.position == before.position)
            own = (columns.subscriber == self._group, columns.topic == self.checkpoint_name)
            statement = update(self._table).where(*own, *stands).values(values)
        with blaming_no_record(tx.engine):
            # Of an INSERT, SQLAlchemy keeps the count only where it is asked to.
            moved = tx.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
        if moved != 1:
            raise CheckpointMoved(
                f"another subscriber of group {self._group!r} advanced its checkpoint",
                remedy="run one subscriber a group on a store. On Kafka members share the partitions",
                place=f"{self.checkpoint_name} {self._group}",
            )

    def _under(self, tx: Connection, name: str) -> Position | None:
        columns = self._table.c
        query = select(columns.order_xid, columns.position)
        row = tx.execute(query.where(columns.subscriber == self._group, columns.topic == name)).first()
        return None if row is None else Position(*row)

    def _take_over(self, tx: Connection) -> Position | None:
        """Take over the place that lies under the topic alone, where it is one of this store, and what was handled.

        Several stores may have shared it: each takes over its own events, and only its owner takes over the place.
        """
        self._copy_handled(tx)
        former = self._under(tx, self._topic)
        if former is None or not (former == BEFORE_ALL or self._has(former)):
            return None
        self.advance(tx, None, former)
        return former

    def _has(self, place: Position) -> bool:
        """Whether an event of the store has this place, or had it before its stream was deleted."""
        tables = (self._store.tables.events, self._store.tables.deleted_events)
        with transaction(self._store.engine) as tx:
            return any(
                tx.scalar(select(exists().where(t.c.order_xid == place.order_xid, t.c.position == place.position)))
                for t in tables
            )

    def _copy_handled(self, tx: Connection) -> None:
        inbox = inbox_table(MetaData())
        former = and_(inbox.c.subscriber == self._group, inbox.c.topic == self._topic)
        if not inspect(tx).has_table(inbox.name) or not tx.scalar(select(exists().where(former))):
            return
        for ids in self._ids():
            known = select(inbox.c.event_id, inbox.c.time, inbox.c.outcome).where(former, inbox.c.event_id.in_(ids))
            own = {"subscriber": self._group, "topic": self.checkpoint_name}
            if rows := [{**row, **own} for row in tx.execute(known).mappings()]:
                tx.execute(upsert(tx, inbox).on_conflict_do_nothing(), rows)

    def _ids(self) -> Iterator[Sequence[UUID]]:
        events = self._store.tables.events
        query = select(events.c.id).where(events.c.category == self._category)
        with transaction(self._store.engine) as tx:
            yield from tx.scalars(query, execution_options={"yield_per": _PART}).partitions()


def _checkpoints(metadata: MetaData) -> Table:
    return Table(
        "factfold_checkpoints",
        metadata,
        Column("subscriber", Text, primary_key=True),
        Column("topic", Text, primary_key=True),
        Column("order_xid", BigInteger, nullable=False),
        Column("position", BigInteger, nullable=False),
    )
