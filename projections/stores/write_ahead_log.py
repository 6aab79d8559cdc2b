"""SQLite's write-ahead log, kept short.

SQLite restarts it only when a writer meets no reader of it. Where there always is a reader, it grows for ever,
and every read searches all of it (https://www.sqlite.org/wal.html, "Avoiding Excessively Large WAL Files"). A writer
that meets a long one waits for its readers, for a second at most; readers that come meanwhile are not held up.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import sqlalchemy as sa

LONG: Final = 64 * 1024 * 1024  # bytes; the first batch of a rebuild writes as much
_PATIENCE: Final = 1_000  # milliseconds


class WriteAheadLog:
    """The log of one database file; ``long`` is from how many bytes on it is written back."""

    def __init__(self, database: str, *, long: int = LONG) -> None:
        self._file = Path(f"{database}-wal")
        self._long = long
        self._limit = long

    def keep_short(self, engine: sa.Engine) -> None:
        """Write it back and empty it if it is long; if a reader never ends, again when it is twice as long."""
        size = self._size()
        if size < self._limit:
            return
        self._limit = 2 * size
        # What was committed is committed: a disk that is full says so to the next transaction.
        with (
            suppress(sa.exc.DBAPIError),
            engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
        ):
            before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_PATIENCE}")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {before}")
        if self._size() < size:
            self._limit = self._long

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:  # not written yet
            return 0
