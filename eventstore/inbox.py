"""Which events a subscription has handled: one row each, written in the transaction of the handler's own effects.

A redelivered event meets its row and is not handled again. A row with outcome `dead` is an event that was given up:
it may be claimed again, so that a dead letter sent back to its topic is handled like a new record.

The transaction that is lent to a handler, and how the subscriber sees that the handler ended it.

Were it ended by a handler, rows of the inbox would be committed without the effects they stand for, or effects be
lost that are counted as done. What a statement does is decided by the database and not by its text: a mark that lasts
as long as the transaction is looked for after each call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from eventstore.backends.sql.dialect import blaming_no_record, is_outage, transaction, unavailable
from eventstore.backends.sql.greenlets import release_when_cut_off
from eventstore.backends.sql.values import bindable, keys, needed
from eventstore.backends.sql.ways import Mark, check_transactional, create_missing, supported, ways_of
from eventstore.errors import StoreUnavailable, SubscriptionError

HANDLED: Final = "handled"
DEAD: Final = "dead"

# So few that the delivery of the next batch does not wait for it for long.
_FORGOTTEN_AT_ONCE: Final = 10_000


def inbox_table(metadata: sa.MetaData) -> sa.Table:
    """Describe the inbox: group (column `subscriber`), topic, event id, time, outcome `handled` or `dead`."""
    table = sa.Table(
        "factfold_inbox",
        metadata,
        *keys("subscriber", "topic"),
        sa.Column("event_id", sa.Uuid, primary_key=True),
        *needed(sa.DateTime(timezone=True), "time"),
        *needed(sa.Text, "outcome"),
    )
    # Rows lie in the order of their time, so a range index finds old ones and costs an insert next to nothing.
    sa.Index("factfold_inbox_time", table.c.time, postgresql_using="brin")
    return table


class Inbox:
    """The events that one group has handled, by topic, in the handler's database, and the handler's transactions.

    Attributes:
        topics: The topics whose events were claimed or given up here.
    """

    def __init__(self, engine: sa.Engine, group: str) -> None:
        self._ways = supported(engine, "the inbox")
        release_when_cut_off(engine)
        self._engine = engine
        self._group = group
        self._metadata = sa.MetaData()
        self._table = inbox_table(self._metadata)
        self.topics: set[str] = set()
        self._driver: Any = None

    def create_tables(self) -> None:
        """Create the table if it is missing; safe from many processes at once. StoreUnavailable."""
        with self.begin() as tx:
            create_missing(tx, self._metadata)

    def check_engine(self) -> None:
        """Refuse an engine in autocommit mode; DeclarationError, StoreUnavailable."""
        with self.begin() as tx:
            check_transactional(tx)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
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

    def claim(self, tx: sa.Connection, topic: str, ids: Sequence[str]) -> set[str] | None:
        """Insert ids (32 hexadecimal digits), each given once; return those that were new, None where all were."""
        if not ids:
            return None
        self.topics.add(topic)
        with blaming_no_record(self._engine):
            return self._ways.claim(tx, self._group, topic, ids)

    def unclaim(self, tx: sa.Connection, topic: str, ids: Sequence[str]) -> int:
        """Take back claims of events that were not handled after all; return how many there were."""
        claimed = sa.delete(self._table).where(self._of(topic))
        with blaming_no_record(self._engine):
            parts = bindable(list(map(UUID, ids)))
            return sum(tx.execute(claimed.where(self._table.c.event_id.in_(part))).rowcount for part in parts)

    def give_up(self, tx: sa.Connection, topic: str, event_id: str) -> None:
        """Note that an event became a dead letter."""
        self.topics.add(topic)
        key = {"subscriber": self._group, "topic": topic, "event_id": UUID(event_id)}
        updates = {"time": self._ways.now(), "outcome": DEAD}
        statement = self._ways.insert(self._table).values(key | updates)
        tx.execute(statement.on_conflict_do_update(index_elements=list(key), set_=updates))

    def forget(self, topics: Iterable[str], after: timedelta | None = None) -> int:
        """Delete rows older than that by the database's clock, or any; 10,000 of a topic at most, return how many."""
        event_id = self._table.c.event_id
        is_old = sa.true() if after is None else self._table.c.time < self._ways.now(ago=after)
        with self.begin() as tx:
            forgotten = 0
            for own in map(self._of, topics):
                old = sa.select(event_id).where(own, is_old).limit(_FORGOTTEN_AT_ONCE)
                forgotten += tx.execute(sa.delete(self._table).where(own, event_id.in_(old))).rowcount
            return forgotten

    def forget_all(self, topic: str) -> int:
        """Delete every row of a topic, part by part, and return how many. Its events are handled again if they come."""
        self.create_tables()
        forgotten = 0
        while count := self.forget([topic]):
            forgotten += count
        return forgotten

    def _of(self, topic: str) -> sa.ColumnElement[bool]:
        return sa.and_(self._table.c.subscriber == self._group, self._table.c.topic == topic)

    def outage(self, error: BaseException) -> StoreUnavailable | None:
        """Return what to raise where an error is the database's being away, and so no record's fault."""
        return unavailable(self._engine, error) if is_outage(error) else None

    def sever(self) -> None:
        """Cut the connection of a transaction another thread is stuck in: the database rolls it back."""
        if self._driver is not None:  # else it waits for a connection
            self._ways.sever(self._engine, self._driver)


# The usual spellings are refused before they are executed. Going back to a savepoint ends nothing.
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b", re.IGNORECASE
)


class LentTransaction:
    """The transaction a handler writes in, which is its subscriber's to end."""

    def __init__(self, tx: sa.Connection) -> None:
        self.tx = tx
        self._begun = tx.get_transaction()
        self._driver: Any = tx.connection.driver_connection
        self._adapted: Any = tx.connection.dbapi_connection  # an asyncio driver made synchronous; else the same
        self._ways = ways_of(tx)
        self._mark: Mark | None = None
        self._lent = True
        self._was_open = False
        self.ended = False
        for name in ("commit", "rollback"):
            sa.event.listen(tx, name, self._refuse)
        sa.event.listen(tx, "before_cursor_execute", self._refuse_by_statement)

    def watch(self) -> None:
        """Mark the transaction before a handler gets it; StoreUnavailable.

        On SQLite it has to be open: a savepoint that stood alone would be a transaction itself.
        """
        self._mark = self._ways.mark(self.tx, self._driver)
        self._was_open = self._is_open()

    def take_back(self, *, failed: bool = False) -> None:
        """Let it be ended again; after a failure, `ended` says whether a handler may have done so."""
        self._lent = False
        if failed:
            self.ended = (self._was_open and not self._is_open()) or (self._mark is not None and self._mark.missing())
        if self._begun is None or not self._begun.is_active:
            # A commit that was refused: SQLAlchemy takes it for ended, and its pool would lend it to others as it is.
            self._adapted.rollback()

    def check(self) -> None:
        """Raise SubscriptionError unless it is still the one begun and can be committed; StoreUnavailable."""
        if self._begun is None or not self._begun.is_active or self.tx.get_transaction() is not self._begun:
            raise _ended()
        # Drivers begin with the first statement.
        if self._was_open and not self._is_open():
            raise _ended()
        if self._mark is None:
            self.watch()
        elif not self._mark.holds():
            raise _ended()

    def _is_open(self) -> bool:
        return self._ways.is_open(self.tx, self._driver, lent=self._lent)

    def _refuse(self, tx: sa.Connection) -> None:
        if self._lent:
            raise _ended()

    def _refuse_by_statement(self, tx: sa.Connection, cursor: Any, statement: str, *others: Any) -> None:
        if self._lent and _ENDS_TRANSACTION.match(statement):
            raise _ended()


def _ended() -> SubscriptionError:
    return SubscriptionError(
        "the handler ended the transaction it was lent",
        remedy="leave commit and rollback to the subscriber: raise an error to take everything back, "
        "use `with tx.begin_nested():` to take back a part",
        code="transaction-broken",
    )
