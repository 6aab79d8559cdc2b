"""Archived streams: a row each in a table of their own, which an append looks at. Their events stay where they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, delete, select

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.reading import Reader
from eventstore.backends.sql.ways import upsert
from eventstore.errors import FactfoldError, StoreUnavailable, StreamDeleted, WrongExpectedVersion
from eventstore.identifiers import DELETED_HEAD, ExpectedVersion, accepted_heads

_PAGE: Final = 1000
_PATIENCE_SECONDS: Final = 30.0
# An append takes less than a millisecond, unless it is part of a longer transaction.
_PAUSE_SECONDS: Final = 0.005


class ArchivedStreams:
    """Marks streams as finished: no append to one succeeds any more once `add` has returned.

    An append that began before the mark was committed does not see it. Where one writer locks out the others there is
    none; elsewhere, a mark under an exact version is looked at again once all appends of that time are over.
    """

    def __init__(self, database: Database, reader: Reader, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._events = database.tables.events
        self._archived = database.tables.archived_streams
        self._snapshots = database.tables.snapshots
        self._reader = reader
        self._clock = clock

    def add(self, stream: str, expected: ExpectedVersion) -> None:
        """Archive a stream; WrongExpectedVersion, StreamDeleted, StoreUnavailable."""
        with self._database.writing() as connection:
            self._hold(connection, stream)
            self._check(stream, expected, self._reader.head(stream, connection))
            row = {"stream": stream, "time": self._clock().astimezone(UTC)}
            mark = upsert(connection, self._archived).values(row).on_conflict_do_nothing()
            # Without the option, psycopg's answer is -1 for an INSERT.
            marked = connection.execute(mark, execution_options={"preserve_rowcount": True})
            connection.execute(delete(self._snapshots).where(self._snapshots.c.stream == stream))
        if isinstance(expected, int):
            self._confirm(stream, expected, own=bool(marked.rowcount))

    def _confirm(self, stream: str, expected: int, *, own: bool) -> None:
        """Check again after all appends that did not see the mark. Remove a mark of our own that came too late."""
        try:
            self._wait_for_appends_under_way(stream)
            self._check(stream, expected, self._reader.head(stream))
        except FactfoldError:
            if own:
                self.remove(stream)
            raise

    def _hold(self, connection: Connection, stream: str) -> None:
        """Let a deletion wait that comes between the look at a stream and its mark; one under way goes first."""
        version = self._events.c.version
        last = select(version).where(self._events.c.stream == stream).order_by(version.desc()).limit(1)
        connection.execute(last.with_for_update(read=True, key_share=True))

    def _check(self, stream: str, expected: ExpectedVersion, head: int) -> None:
        if head == DELETED_HEAD:
            raise StreamDeleted(stream)
        low, high = accepted_heads(expected)
        if not max(low, 0) <= head <= high:
            raise WrongExpectedVersion(stream, expected, None if head < 0 else head)

    def _wait_for_appends_under_way(self, stream: str) -> None:
        waiting, until = self._appending(), time.monotonic() + _PATIENCE_SECONDS
        while waiting and time.monotonic() < until:
            self._database.sleep(_PAUSE_SECONDS)
            waiting &= self._appending()
        if waiting:
            raise StoreUnavailable(
                f"transactions that append have been open for {_PATIENCE_SECONDS:.0f} seconds: "
                f"they may still append to stream {stream!r}",
                remedy="archive it when they have ended, or expect ANY or STREAM_EXISTS, which do not wait",
                place=stream,
            )

    def _appending(self) -> frozenset[str]:
        with self._database.statement() as connection:
            return self._database.dialect.appending(connection)

    def remove(self, stream: str) -> None:
        """Take a stream out of the archive."""
        with self._database.writing() as connection:
            connection.execute(delete(self._archived).where(self._archived.c.stream == stream))

    def holds(self, stream: str) -> bool:
        """Say whether a stream is archived."""
        query = select(self._archived.c.stream).where(self._archived.c.stream == stream)
        with self._database.statement() as connection:
            return connection.execute(query).first() is not None

    def streams(self, category: str | None) -> Iterator[str]:
        """Yield the archived streams by name, a page at a time."""
        name = self._archived.c.stream
        query = select(name).order_by(name).limit(_PAGE)
        if category is not None:
            query = query.where(name.startswith(f"{category}-", autoescape=True))
        last = ""
        while True:
            with self._database.statement() as connection:
                page = connection.execute(query.where(name > last)).scalars().all()
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1]
