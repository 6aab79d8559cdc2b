"""The transaction that is lent to a handler, and how the subscriber sees that the handler ended it.

Were it ended by a handler, rows of the inbox would be committed without the effects they stand for, or effects be
lost that are counted as done. What a statement does is decided by the database and not by its text: a mark that lasts
as long as the transaction is looked for after each call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, event

from eventstore.backends.batch import stream_name
from eventstore.backends.sql.reading import Reader
from eventstore.backends.sql.ways import Mark, ways_of
from eventstore.backends.streams import Part, StoredStreams
from eventstore.errors import SubscriptionError
from eventstore.given_values import require_type
from eventstore.identifiers import NO_VERSION, StreamName
from eventstore.messages import RecordedEvent
from eventstore.store import AppendResult, StreamAppend

# The usual spellings are refused before they are executed. Going back to a savepoint ends nothing.
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b", re.IGNORECASE
)


class LentTransaction:
    """The transaction a handler writes in, which is its subscriber's to end."""

    def __init__(self, tx: Connection) -> None:
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
            event.listen(tx, name, self._refuse)
        event.listen(tx, "before_cursor_execute", self._refuse_by_statement)

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

    def _refuse(self, tx: Connection) -> None:
        if self._lent:
            raise _ended()

    def _refuse_by_statement(self, tx: Connection, cursor: Any, statement: str, *others: Any) -> None:
        if self._lent and _ENDS_TRANSACTION.match(statement):
            raise _ended()


def _ended() -> SubscriptionError:
    return SubscriptionError(
        "the handler ended the transaction it was lent",
        remedy="leave commit and rollback to the subscriber: raise an error to take everything back, "
        "use `with tx.begin_nested():` to take back a part",
        code="transaction-broken",
    )


class SqlStreams(StoredStreams):
    """Streams that a reader of the database reads."""

    _reader: Reader

    def _part(self, part: Part) -> Iterator[RecordedEvent]:
        return self._reader.stream(part)

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        require_type(event_id, UUID, "event_id", takes="a UUID")
        return self._reader.find(event_id)

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        head = self._reader.head(str(stream_name(stream)))
        return None if head <= NO_VERSION else head


class JoinedStreams(SqlStreams):
    """Streams of a store in the transaction of a connection, which its owner ends."""

    def __init__(self, append: Callable[..., list[AppendResult]], reader: Reader, connection: Connection) -> None:
        self._append, self._reader, self._connection = append, reader, connection

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, as `SqlEventStore.append_batch` does with a connection."""
        return self._append(appends, connection=self._connection)

    def at(self, places: Sequence[tuple[str, int]]) -> list[RecordedEvent]:
        """Return the events of these streams and versions, as far as they are there."""
        return self._reader.at(places)
