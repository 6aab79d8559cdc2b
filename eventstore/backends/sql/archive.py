"""Archived streams: a row each in a table of their own, which an append looks at. Their events stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import delete, select

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.reading import Reader
from eventstore.backends.sql.upserts import upsert
from eventstore.errors import StreamDeleted, WrongExpectedVersion
from eventstore.identifiers import DELETED_HEAD, ExpectedVersion, accepted_heads

_PAGE: Final = 1000


class Archive:
    """Marks streams as finished; an append that began before the mark was committed counts as one before it."""

    def __init__(self, database: Database, reader: Reader, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._archived = database.tables.archived_streams
        self._snapshots = database.tables.snapshots
        self._reader = reader
        self._clock = clock

    def add(self, stream: str, expected: ExpectedVersion) -> None:
        """Archive a stream; WrongExpectedVersion, StreamDeleted."""
        head = self._reader.head(stream)
        if head == DELETED_HEAD:
            raise StreamDeleted(stream)
        low, high = accepted_heads(expected)
        if not max(low, 0) <= head <= high:
            raise WrongExpectedVersion(stream, expected, None if head < 0 else head)
        with self._database.writing() as connection:
            row = {"stream": stream, "time": self._clock().astimezone(UTC)}
            connection.execute(upsert(connection, self._archived).values(row).on_conflict_do_nothing())
            connection.execute(delete(self._snapshots).where(self._snapshots.c.stream == stream))

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
