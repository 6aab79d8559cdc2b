"""The transaction that is lent to a handler, and how the subscriber sees that the handler ended it.

Were it ended by a handler, rows of the inbox would be committed without the effects they stand for, or effects be
lost that are counted as done. What a statement does is decided by the database and not by its text: a mark that lasts
as long as the transaction is looked for after each call.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any, Final, Protocol

from sqlalchemy import Connection, event

from eventstore.backends.sql.transactions import blaming_no_record, unavailable
from eventstore.errors import TransactionBroken

# PQTransactionStatusType of libpq. psycopg has an enum of these, but the embedded road does without psycopg.
_PQ_IDLE: Final = 0
_PQ_ABORTED: Final = 3
_PQ_UNKNOWN: Final = 4

# The usual spellings are refused before they are executed. Going back to a savepoint ends nothing.
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b", re.IGNORECASE
)

_SAVEPOINT: Final = "factfold_lent"
# PostgreSQL cuts an application's name at 63 bytes.
_NAME_LENGTH: Final = 50


class LentTransaction:
    """The transaction a handler writes in, which is its subscriber's to end."""

    def __init__(self, tx: Connection) -> None:
        self.tx = tx
        self._begun = tx.get_transaction()
        self._driver: Any = tx.connection.driver_connection
        self._adapted: Any = tx.connection.dbapi_connection  # an asyncio driver made synchronous; else the same
        self._postgres = tx.dialect.name == "postgresql"
        self._mark: _Mark | None = None
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
        if self._postgres:
            self._mark = _Setting(self.tx, self._driver)
        elif self._is_open():
            self._mark = _Savepoint(self._adapted)
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
        """Raise TransactionBroken unless it is still the one begun and can be committed; StoreUnavailable."""
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
        if not self._postgres:
            try:
                return bool(self._driver.in_transaction)
            except ValueError:  # aiosqlite's for one that is closed: a cancelled statement cost it, and was rolled back
                return True
        status = self._driver.pgconn.transaction_status
        if status == _PQ_UNKNOWN and self._lent:
            raise unavailable(self.tx.engine, ConnectionError("the connection was lost below the handler"))
        if status == _PQ_ABORTED and self._lent:
            # COMMIT would be answered by ROLLBACK, and nothing would be raised.
            raise TransactionBroken(
                "the handler went on after an error that aborted its transaction",
                remedy="let the error out, or do what may fail in `with tx.begin_nested():`",
            )
        return bool(status != _PQ_IDLE)

    def _refuse(self, tx: Connection) -> None:
        if self._lent:
            raise _ended()

    def _refuse_by_statement(self, tx: Connection, cursor: Any, statement: str, *others: Any) -> None:
        if self._lent and _ENDS_TRANSACTION.match(statement):
            raise _ended()


class _Mark(Protocol):
    """What a transaction has, and loses with its end."""

    def holds(self) -> bool:
        """Say whether the transaction is the one that was marked; StoreUnavailable."""

    def missing(self) -> bool:
        """Say, of a transaction that may have failed, whether the mark is missing; raises nothing."""


class _Setting:
    """The application's name, set for this transaction alone.

    PostgreSQL reports each change of it to its client, and so its return to what it was: to look costs no round trip.
    Where it differs, as for a handler that set it or behind a pooler, the time the transaction began decides.
    """

    def __init__(self, tx: Connection, driver: Any) -> None:
        self._tx = tx
        self._pgconn = driver.pgconn
        before = self._reported()
        marked = f"{before.decode(errors='ignore')[:_NAME_LENGTH]} (lent)"
        with blaming_no_record(tx.engine):
            row = tx.exec_driver_sql(
                "select transaction_timestamp(), set_config('application_name', %(name)s, true)", {"name": marked}
            ).one()
        self._since = row[0]
        self._name = self._reported()
        self._is_reported = self._name != before

    def holds(self) -> bool:
        if not self.missing():
            return True
        with blaming_no_record(self._tx.engine):
            return bool(self._tx.exec_driver_sql("select transaction_timestamp()").scalar() == self._since)

    def missing(self) -> bool:
        return not self._is_reported or self._reported() != self._name

    def _reported(self) -> bytes:
        return bytes(self._pgconn.parameter_status(b"application_name") or b"")


class _Savepoint:
    """A savepoint: SQLite releases it with the transaction, and knows no savepoint of that name afterwards."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._stands = False
        self._set()

    def holds(self) -> bool:
        if self.missing():
            return False
        self._set()
        return True

    def missing(self) -> bool:
        if not self._stands:
            return False
        try:
            self._execute(f"release {_SAVEPOINT}")
        except (sqlite3.Error, ValueError) as error:
            # Another error: the connection is closed, or a statement that is not read to its end holds the savepoint.
            return "no such savepoint" in str(error)
        self._stands = False
        return False

    def _set(self) -> None:
        if not self._stands:
            self._execute(f"savepoint {_SAVEPOINT}")
            self._stands = True

    def _execute(self, statement: str) -> None:
        cursor = self._driver.cursor()
        try:
            cursor.execute(statement)
        finally:
            cursor.close()


def _ended() -> TransactionBroken:
    return TransactionBroken(
        "the handler ended the transaction it was lent",
        remedy="leave commit and rollback to the subscriber: raise an error to take everything back, "
        "use `with tx.begin_nested():` to take back a part",
    )
