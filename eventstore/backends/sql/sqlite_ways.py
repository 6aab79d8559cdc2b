"""SQLite's ways, by its own driver and by aiosqlite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Table, literal_column
from sqlalchemy.dialects import sqlite

# Writers wait this long for SQLite's one write lock; its own default is 5 s.
_LOCK_SECONDS: Final = 30
_SAVEPOINT: Final = "factfold_lent"

# Of the database's own clock, by which rows are forgotten as well: one subscriber's that is wrong forgets nothing.
# SQLite has milliseconds, SQLAlchemy writes and reads microseconds.
_NOW: Final = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
# `where true` keeps SQLite from reading `on conflict` as a join.
_CLAIM: Final = f"""
insert into factfold_inbox (subscriber, topic, event_id, time, outcome)
select ?, ?, value, {_NOW}, 'handled' from json_each(?) where true
on conflict (subscriber, topic, event_id) do update set time = excluded.time, outcome = excluded.outcome
    where factfold_inbox.outcome = 'dead'
returning event_id
"""  # noqa: S608 - all of it is ours
_UNCLAIM: Final = """
delete from factfold_inbox where subscriber = ? and topic = ? and event_id in (select value from json_each(?))
"""


class SqliteWays:
    """What SQLite can do."""

    driver, async_driver = "pysqlite", "aiosqlite"
    options: Mapping[str, Any] = {"connect_args": {"timeout": _LOCK_SECONDS}}
    has_schemas = has_sessions = False

    def insert(self, table: Table) -> sqlite.Insert:
        """Begin an INSERT that can resolve conflicts."""
        return sqlite.insert(table)

    def claim(self, tx: Connection, group: str, topic: str, ids: Sequence[str]) -> set[str] | None:
        """Insert ids."""
        return set(tx.exec_driver_sql(_CLAIM, (group, topic, json.dumps(ids))).scalars())

    def unclaim(self, tx: Connection, group: str, topic: str, ids: Sequence[str]) -> int:
        """Delete ids."""
        return tx.exec_driver_sql(_UNCLAIM, (group, topic, json.dumps(ids))).rowcount

    def now(self, *, ago: timedelta = timedelta(0)) -> ColumnElement[Any]:
        """Return the time of this machine, as SQLAlchemy writes it."""
        return literal_column(_NOW.replace("'now'", f"'now', '-{ago.total_seconds()} seconds'"))

    def change_key(self, tx: Connection, table: Table) -> None:
        """Move the rows into a table of the new form: SQLite changes no key."""
        driver: Any = tx.connection.driver_connection
        if not driver.in_transaction:  # which SQLite's driver does not begin before it changes tables
            tx.exec_driver_sql("BEGIN IMMEDIATE")
        former, columns = f"{table.name}_former", ", ".join(column.name for column in table.columns)
        tx.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {former}")
        table.create(tx)
        tx.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {former}")  # noqa: S608 - ours
        tx.exec_driver_sql(f"DROP TABLE {former}")

    def reserve(self, tx: Connection, names: Sequence[str], space: int) -> set[str]:
        """Return all names: there is one writer."""
        return set(names)

    def lock_creation(self, tx: Connection) -> None:
        """Nothing: a transaction that has only looked holds nobody up, and the second process finds the tables."""

    def holds_transaction(self, driver: Any) -> bool:
        """By default the driver begins before the first change. Without a level, a transaction must be open already."""
        waits = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not True
        return bool(driver.in_transaction or waits)

    def is_open(self, tx: Connection, driver: Any, *, lent: bool) -> bool:
        """Ask the driver."""
        try:
            return bool(driver.in_transaction)
        except ValueError:  # aiosqlite's for one that is closed: a cancelled statement cost it, and was rolled back
            return True

    def mark(self, tx: Connection, driver: Any) -> _Savepoint | None:
        """Mark an open transaction by a savepoint: one that stood alone would be a transaction itself."""
        return _Savepoint(tx.connection.dbapi_connection) if self.is_open(tx, driver, lent=True) else None

    def sever(self, engine: Engine, driver: Any) -> None:
        """Interrupt and close the connection; aiosqlite's is closed by the thread it has of its own."""
        if engine.dialect.is_async:
            driver.stop()
        else:
            driver.interrupt()
            driver.close()


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
