"""Transactions in a handler's database: outages told from faults, and the one that is lent to the handler itself."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, MetaData, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.errors import DeclarationError, StoreUnavailable, TransactionBroken

# "fact" as a number, as the store's own: processes that create tables at once wait for each other.
_CREATION_LOCK: Final = 0x66616374
# Classes of PostgreSQL's codes: connection, resources, the server going down or coming up.
_AWAY: Final = ("08", "53", "57P")
# It is there and says not now: read-only since a failover, serialization failure, deadlock, a lock not to be had.
_NOT_NOW: Final = ("25006", "40001", "40P01", "55P03")

# PQTransactionStatusType of libpq. psycopg has an enum of these, but the embedded road does without psycopg.
_PQ_IDLE: Final = 0
_PQ_IN_TRANSACTION: Final = 2
_PQ_ABORTED: Final = 3
_PQ_UNKNOWN: Final = 4

# Going back to a savepoint ends nothing.
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b", re.IGNORECASE
)


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Lend a connection whose work is committed at the end; StoreUnavailable where the database is away."""
    try:
        with engine.begin() as tx:
            yield tx
    except (DBAPIError, PoolTimeout) as error:
        if not is_outage(error):
            raise
        raise unavailable(engine, error) from error


@contextmanager
def blaming_no_record(engine: Engine) -> Iterator[None]:
    """Run statements of our own, whose failure, whatever it is, says nothing of a record: StoreUnavailable."""
    try:
        yield
    except DBAPIError as error:
        raise unavailable(engine, error) from error


def is_outage(error: BaseException) -> bool:
    """Say whether an error is the database's being away or busy, and so no record's fault."""
    if isinstance(error, StoreUnavailable | PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return "locked" in str(error.orig)
    # psycopg gives no code where there was no connection.
    code = _code(error)
    passing = code.startswith(_AWAY + _NOT_NOW) if code else isinstance(error, OperationalError | InterfaceError)
    return error.connection_invalidated or passing


def unavailable(engine: Engine, error: BaseException) -> StoreUnavailable:
    """Build the error for a handler's database that does not answer, or not as it should."""
    why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    answers = bool(_code(error)) and not _code(error).startswith(_AWAY)
    return StoreUnavailable(
        f"the handler's database {'refuses' if answers else 'does not answer'}: {why}",
        remedy="check that it runs, its address, user and password, rights and locks; what was not committed "
        "arrives again",
        place=engine.url.render_as_string(hide_password=True),
    )


def create_missing(tx: Connection, metadata: MetaData) -> None:
    """Create the tables that are missing, one process at a time."""
    if tx.dialect.name == "postgresql":
        tx.exec_driver_sql(f"select pg_advisory_xact_lock({_CREATION_LOCK})")
    metadata.create_all(tx)


def check_transactional(tx: Connection) -> None:
    """Refuse an engine in autocommit mode: a claim would stay though its handler failed. DeclarationError."""
    tx.exec_driver_sql("select 1")
    driver: Any = tx.connection.driver_connection
    if tx.dialect.name == "postgresql":
        holds = driver.pgconn.transaction_status == _PQ_IN_TRANSACTION
    else:
        # By default the driver begins before the first change; without a level, somebody else has to have begun.
        waits = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not True
        holds = driver.in_transaction or waits
    if not holds:
        raise DeclarationError(
            "the engine is in autocommit mode, where nothing is committed or taken back as one",
            remedy="give an engine without isolation_level='AUTOCOMMIT'",
            place=tx.engine.url.render_as_string(hide_password=True),
        )


class LentTransaction:
    """The transaction a handler writes in, which is its subscriber's to end.

    Were it ended by a handler, rows of the inbox would be committed without the effects they stand for, or effects be
    gone that are counted as done.
    """

    def __init__(self, tx: Connection) -> None:
        self.tx = tx
        self._begun = tx.get_transaction()
        self._driver: Any = tx.connection.driver_connection
        self._adapted: Any = tx.connection.dbapi_connection  # an asyncio driver made synchronous; else the same
        self._postgres = tx.dialect.name == "postgresql"
        self._lent = True
        self._was_open = False
        self.gone = False
        for name in ("commit", "rollback"):
            event.listen(tx, name, self._refuse)
        event.listen(tx, "before_cursor_execute", self._refuse_by_statement)

    def take_back(self) -> None:
        """Let it be ended again; `gone` says whether it was all the same, by a handler that spoke to the driver."""
        self._lent = False
        self.gone = self._was_open and not self._is_open()
        if self._begun is None or not self._begun.is_active:
            # A commit that was refused: SQLAlchemy takes it for ended, and its pool would lend it to others as it is.
            self._adapted.rollback()

    def check(self) -> None:
        """Raise TransactionBroken unless it is still the one begun and can be committed; StoreUnavailable."""
        if self._begun is None or not self._begun.is_active or self.tx.get_transaction() is not self._begun:
            raise _ended()
        is_open = self._is_open()
        # Drivers begin with the first statement.
        if self._was_open and not is_open:
            raise _ended()
        self._was_open = is_open

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


def _ended() -> TransactionBroken:
    return TransactionBroken(
        "the handler ended the transaction it was lent",
        remedy="leave commit and rollback to the subscriber: raise an error to take everything back, "
        "use `with tx.begin_nested():` to take back a part",
    )


def _code(error: BaseException) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""
