"""The transaction that is lent to a handler, and how the subscriber sees that the handler ended it.

Were it ended by a handler, rows of the inbox would be committed without the effects they stand for, or effects be
lost that are counted as done. What a statement does is decided by the database and not by its text: a mark that lasts
as long as the transaction is looked for after each call.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import Connection, event

from eventstore.backends.sql.ways import Mark, ways_of
from eventstore.errors import SubscriptionError

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
        self._mark = self._ways.mark(self.tx, is_open=self._is_open())
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
