"""Which events a subscription has handled: one row each, written in the transaction of the handler's own effects.

A redelivered event meets its row and is not handled again. A row with outcome `dead` is an event that was given up:
it may be claimed again, so that a dead letter sent back to its topic is handled like a new record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    Index,
    MetaData,
    Table,
    Text,
    Uuid,
    and_,
    delete,
    inspect,
    select,
)

from eventstore.backends.sql.greenlets import release_when_cut_off
from eventstore.backends.sql.lending import LentTransaction
from eventstore.backends.sql.transactions import blaming_no_record, is_outage, transaction, unavailable
from eventstore.backends.sql.ways import check_transactional, create_missing, supported
from eventstore.errors import StoreNotPrepared, StoreUnavailable
from eventstore.shown_urls import shown_url

HANDLED: Final = "handled"
DEAD: Final = "dead"

# So few that the delivery of the next batch does not wait for it for long.
_FORGOTTEN_AT_ONCE: Final = 10_000


def inbox_table(metadata: MetaData) -> Table:
    """Describe the inbox: group (column `subscriber`), topic, event id, time, outcome `handled` or `dead`."""
    table = Table(
        "factfold_inbox",
        metadata,
        Column("subscriber", Text, primary_key=True),
        Column("topic", Text, primary_key=True),
        Column("event_id", Uuid, primary_key=True),
        Column("time", DateTime(timezone=True), nullable=False),
        Column("outcome", Text, nullable=False),
    )
    # Rows lie in the order of their time, so a range index finds old ones and costs an insert next to nothing.
    Index("factfold_inbox_time", table.c.time, postgresql_using="brin")
    return table


class Inbox:
    """The events of one topic that one group has handled, in the handler's database, and the handler's transactions.

    `of` gives the inbox of another topic of the group, for transactions that this one begins.
    """

    def __init__(self, engine: Engine, group: str, *, topic: str) -> None:
        self._ways = supported(engine, "the inbox")
        release_when_cut_off(engine)
        self._engine = engine
        self._group = group
        self._topic = topic
        self._metadata = MetaData()
        self._table = inbox_table(self._metadata)
        columns = self._table.c
        self._own = and_(columns.subscriber == group, columns.topic == topic)
        self._parts: dict[str, Inbox] = {}
        self._driver: Any = None

    def of(self, topic: str) -> Inbox:
        """Return the group's inbox of a topic."""
        part = self._parts.get(topic)
        if part is None:
            part = self._parts[topic] = Inbox(self._engine, self._group, topic=topic)
        return part

    def create_tables(self) -> None:
        """Create the table if it is missing; safe from many processes at once. StoreUnavailable, StoreNotPrepared."""
        with self.begin() as tx:
            create_missing(tx, self._metadata)
            self._check_columns(tx)

    def check_engine(self) -> None:
        """Refuse an engine in autocommit mode; DeclarationError, StoreUnavailable."""
        with self.begin() as tx:
            check_transactional(tx)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Lend a connection whose work is committed at the end; StoreUnavailable where the database is away."""
        try:
            with transaction(self._engine) as tx:
                self._driver = tx.connection.driver_connection
                yield tx
        finally:
            # Back in its pool it may have another user: it must not be severed.
            self._driver = None

    @contextmanager
    def lend(self) -> Iterator[LentTransaction]:
        """Begin a transaction for a handler, committed at the end; StoreUnavailable."""
        with self.begin() as tx:
            lent = LentTransaction(tx)
            try:
                yield lent
            except BaseException as error:
                lent.take_back(failed=isinstance(error, Exception))
                raise
            lent.take_back()

    def claim(self, tx: Connection, ids: Sequence[str]) -> set[str] | None:
        """Insert ids (32 hexadecimal digits), each given once; return those that were new, None where all were."""
        if not ids:
            return None
        with blaming_no_record(self._engine):
            return self._ways.claim(tx, self._group, self._topic, ids)

    def unclaim(self, tx: Connection, ids: Sequence[str]) -> int:
        """Take back claims of events that were not handled after all; return how many there were."""
        with blaming_no_record(self._engine):
            return self._ways.unclaim(tx, self._group, self._topic, ids)

    def give_up(self, tx: Connection, event_id: str) -> None:
        """Note that an event became a dead letter."""
        key = {"subscriber": self._group, "topic": self._topic, "event_id": UUID(event_id)}
        updates = {"time": self._ways.now(), "outcome": DEAD}
        statement = self._ways.insert(self._table).values(key | updates)
        tx.execute(statement.on_conflict_do_update(index_elements=list(key), set_=updates))

    def forget(self, after: timedelta | None = None) -> int:
        """Delete rows older than that by the database's clock, or any; 10,000 at most, return how many."""
        with self.begin() as tx:
            return self.forget_within(tx, after)

    def forget_all(self) -> int:
        """Delete every row, part by part, and return how many; events are handled again if they come again."""
        self.create_tables()
        forgotten = 0
        while count := self.forget():
            forgotten += count
        return forgotten

    @property
    def topics(self) -> list[str]:
        """The topics that `of` was asked for."""
        return list(self._parts)

    def forget_parts(self, after: timedelta, topics: Iterable[str]) -> int:
        """Do as `forget` for several topics, in one transaction."""
        with self.begin() as tx:
            return sum(self.of(topic).forget_within(tx, after) for topic in topics)

    def forget_within(self, tx: Connection, after: timedelta | None) -> int:
        """Do as `forget` in a transaction that was begun already."""
        event_id = self._table.c.event_id
        old = select(event_id).where(self._own)
        if after is not None:
            old = old.where(self._table.c.time < self._ways.now(ago=after))
        return tx.execute(delete(self._table).where(self._own, event_id.in_(old.limit(_FORGOTTEN_AT_ONCE)))).rowcount

    def outage(self, error: BaseException) -> StoreUnavailable | None:
        """Return what to raise where an error is the database's being away, and so no record's fault."""
        return unavailable(self._engine, error) if is_outage(error) else None

    def sever(self) -> None:
        """Cut the connection of a transaction another thread is stuck in: the database rolls it back."""
        if self._driver is not None:  # else it waits for a connection
            self._ways.sever(self._engine, self._driver)

    def _check_columns(self, tx: Connection) -> None:
        existing = {column["name"] for column in inspect(tx).get_columns(self._table.name)}
        if missing := {column.name for column in self._table.c} - existing:
            raise StoreNotPrepared(
                f"the table {self._table.name} is of an older version: it has no column {', '.join(sorted(missing))}",
                remedy="stop its subscribers and drop it. They handle again what their groups have not acknowledged",
                place=shown_url(self._engine.url),
            )
