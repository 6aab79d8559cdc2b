"""An append and what becomes of a lost race."""

from __future__ import annotations

import random
import time
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventstore.backends.sql.batch import Batch, Inserted
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.failures import typed_failures
from eventstore.backends.sql.reading import Reader
from eventstore.errors import EventIdTaken, StoreUnavailable

_PATIENCE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 0.02
_CONFLICT: Final = "events_stream_version_key"


class Appender:
    """Inserts batches; what the statement could not see is settled by reading the heads again."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._dialect = database.dialect
        self._reader = reader

    def insert(self, batch: Batch, connection: Connection | None) -> Inserted:
        """Append in the caller's transaction, or in one of our own.

        Our own tries again while a lost race leaves the expectation met, as under ANY and STREAM_EXISTS.
        """
        with typed_failures(self._database.engine, self._dialect):
            return self._insert_own(batch) if connection is None else self._insert_on(connection, batch)

    def _insert_on(self, connection: Connection, batch: Batch) -> Inserted:
        if not connection.in_transaction():
            # As SQLAlchemy does by itself before a statement of its own, so that the caller's commit counts.
            connection.begin()
        try:
            return self._dialect.append(connection, batch)
        except DBAPIError as error:
            self._check_lost_race(error, batch)
            raise _contended(batch) from error

    def _insert_own(self, batch: Batch) -> Inserted:
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                with self._database.append() as own:
                    return self._dialect.append(own, batch)
            except DBAPIError as error:
                self._check_lost_race(error, batch)
            # Chance keeps the losers of a race from meeting again; no secret depends on it.
            time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))  # noqa: S311
        raise _contended(batch)

    def _check_lost_race(self, error: DBAPIError, batch: Batch) -> None:
        """Return where the append may be tried again, raise otherwise."""
        violated = self._dialect.violated(error)
        if violated == _CONFLICT:
            batch.check_heads([self._reader.head(name) for name in batch.streams.names])
        elif violated is not None:
            raise _id_taken(batch) from error
        elif not self._dialect.is_passing(error):
            raise error


def _id_taken(batch: Batch) -> EventIdTaken:
    return EventIdTaken(
        "an event with the same id was appended before",
        remedy="if this call is a repetition, the first one succeeded: read the stream",
        place=", ".join(batch.streams.names[:3]),
    )


def _contended(batch: Batch) -> StoreUnavailable:
    return StoreUnavailable(
        f"other writers were faster on stream {batch.streams.names[0]!r}",
        remedy="append again in a new transaction, or spread the load over more streams",
        place=batch.streams.names[0],
    )
