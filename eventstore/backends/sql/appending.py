"""An append, what becomes of a lost race, and of an answer that never came."""

from __future__ import annotations

import random
import time
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import Batch, Inserted
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.dialect import typed_failures
from eventstore.backends.sql.reading import Reader
from eventstore.errors import EventIdTaken, OutcomeUnknown, StoreUnavailable, StreamArchived, WrongExpectedVersion
from eventstore.store import AppendResult

_PATIENCE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 0.02
# A server that restarts is back within seconds. The caller of a command should not wait much longer.
_LOST_SECONDS: Final = 10.0
_LOST_PAUSE_SECONDS: Final = 0.2
_CONFLICT: Final = "events_stream_version_key"


class Appender:
    """Appends batches; what the statement could not see is settled by reading the heads, or the ids, again."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._dialect = database.dialect
        self._reader = reader

    def append(self, batch: Batch, connection: Connection | None) -> list[AppendResult]:
        """Append in the caller's transaction, or in one of our own; one result a stream.

        Our own tries again while a lost race leaves the expectation met, as under ANY and STREAM_EXISTS, and looks for
        the ids of its events where the connection was lost. A repetition gets the results of the first append.
        """
        with typed_failures(self._database.engine, self._dialect):
            return self._append_own(batch) if connection is None else self._append_on(connection, batch)

    def _append_on(self, connection: Connection, batch: Batch) -> list[AppendResult]:
        # Looked for first: an id that is taken would cost the caller's transaction.
        if batch.events.named and (earlier := self._reader.earlier(batch, connection)):
            return earlier
        try:
            return self._dialect.append(connection, batch).results(batch)
        except DBAPIError as error:
            self._check_lost_race(error, batch)
            raise _contended(batch) from error

    def _append_own(self, batch: Batch) -> list[AppendResult]:
        try:
            return self._append_once(batch, repeated=batch.events.named)
        except StoreUnavailable as error:
            if not self._was_lost(error):
                raise
            return self._append_again(batch, error)

    def _append_again(self, batch: Batch, lost: StoreUnavailable) -> list[AppendResult]:
        """Repeat an append whose answer is missing: where it took place after all, the ids of its events say so."""
        until, unknown = time.monotonic() + _LOST_SECONDS, not self._dialect.fails_over(lost.__cause__)
        while time.monotonic() < until:
            self._database.sleep(_LOST_PAUSE_SECONDS)
            try:
                return self._append_once(batch, repeated=True)
            except StoreUnavailable as error:
                lost, unknown = error, unknown or not self._dialect.fails_over(error.__cause__)
        if unknown:
            raise _outcome_unknown(batch, lost) from lost
        raise lost

    def _append_once(self, batch: Batch, *, repeated: bool) -> list[AppendResult]:
        """Append; what is refused because it is there already, under its own ids, is no refusal where it may be."""
        try:
            return self._insert(batch).results(batch)
        except (WrongExpectedVersion, EventIdTaken, StreamArchived):
            earlier = self._reader.earlier(batch) if repeated else None
            if earlier is None:
                raise
            return earlier

    def _insert(self, batch: Batch) -> Inserted:
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                with self._database.append() as own:
                    return self._dialect.append(own, batch)
            except DBAPIError as error:
                self._check_lost_race(error, batch)
            # Chance keeps the losers of a race from meeting again; no secret depends on it.
            self._database.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))  # noqa: S311
        raise _contended(batch)

    def _was_lost(self, error: StoreUnavailable) -> bool:
        cause = error.__cause__
        return self._dialect.fails_over(cause) or (isinstance(cause, DBAPIError) and cause.connection_invalidated)

    def _check_lost_race(self, error: DBAPIError, batch: Batch) -> None:
        """Return where the append may be tried again, raise otherwise."""
        violated = self._dialect.violated(error)
        if violated == _CONFLICT:
            batch.check_heads([self._reader.head(name) for name in batch.streams.names])
        elif violated is not None:
            raise batch.id_taken() from error
        elif not self._dialect.is_passing(error):
            raise error


def _outcome_unknown(batch: Batch, lost: StoreUnavailable) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the connection was lost during an append, and it is unknown whether it took place: {lost.message}",
        remedy="when the database answers again, append the same events under the same ids (NewEvent, error.ids): "
        "events that are stored already are not appended twice",
        place=", ".join(batch.streams.names[:3]),
        ids=tuple(batch.events.ids),
    )


def _contended(batch: Batch) -> StoreUnavailable:
    return StoreUnavailable(
        f"other writers were faster on stream {batch.streams.names[0]!r}",
        remedy="append again in a new transaction, or spread the load over more streams",
        place=batch.streams.names[0],
    )
