"""Transactions in a handler's database, and how to distinguish its outages from faults."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from sqlalchemy import Connection, Engine, MetaData, inspect
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateIndex, CreateTable

from eventstore.errors import DeclarationError, StoreUnavailable
from eventstore.shown_urls import shown_url

# "fact" as a number, as the store's own: processes that create tables at once wait for each other.
_CREATION_LOCK: Final = 0x66616374
# Classes of PostgreSQL's codes: connection, resources, the server going down or coming up.
_AWAY: Final = ("08", "53", "57P")
# It is there and says not now: read-only since a failover, serialization failure, deadlock, a lock not to be had.
_NOT_NOW: Final = ("25006", "40001", "40P01", "55P03")

# Of PQTransactionStatusType of libpq. psycopg has an enum of these, but the embedded road does without psycopg.
_PQ_IN_TRANSACTION: Final = 2


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
        remedy="check that it runs and exists, its address, user and password, rights and locks. "
        "What was not committed arrives again",
        place=shown_url(engine.url),
    )


def sever(engine: Engine, driver: Any) -> None:
    """Cut a driver's connection whose transaction another thread is stuck in: the database rolls it back.

    A socket may be shut down from any thread, while libpq waits on it as well as while Python code runs.
    """
    if engine.driver == "aiosqlite":
        driver.stop()  # closed by the thread it has of its own
    elif engine.dialect.name == "sqlite":
        driver.interrupt()
        driver.close()
    else:
        with suppress(OSError, engine.dialect.loaded_dbapi.Error):
            with socket.socket(fileno=os.dup(driver.fileno())) as shared:
                shared.shutdown(socket.SHUT_RDWR)


def create_missing(tx: Connection, metadata: MetaData) -> None:
    """Create the tables that are missing. Several processes may do so at once.

    On PostgreSQL one after the other. On SQLite a transaction that has only looked holds nobody up: the second process
    finds the table there when it creates it.
    """
    if tx.dialect.name == "postgresql":
        tx.exec_driver_sql(f"select pg_advisory_xact_lock({_CREATION_LOCK})")
    looked = inspect(tx)
    for table in metadata.sorted_tables:
        if not looked.has_table(table.name, schema=table.schema):
            tx.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                tx.execute(CreateIndex(index, if_not_exists=True))


def check_transactional(tx: Connection) -> None:
    """Refuse an engine in autocommit mode: a claim would stay though its handler failed. DeclarationError."""
    tx.exec_driver_sql("select 1")
    driver: Any = tx.connection.driver_connection
    if tx.dialect.name == "postgresql":
        holds = driver.pgconn.transaction_status == _PQ_IN_TRANSACTION
    else:
        # By default the driver begins before the first change. Without a level, a transaction must be open already.
        waits = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not True
        holds = driver.in_transaction or waits
    if not holds:
        raise DeclarationError(
            "the engine is in autocommit mode, which has no transactions",
            remedy="give an engine without isolation_level='AUTOCOMMIT'",
            place=shown_url(tx.engine.url),
        )


def _code(error: BaseException) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""
