"""Writes to streams: an append, what becomes of a lost race, and of an answer that never came.

Streams that take no events any more: an archived one has a row that appends look at, a deleted one has no events.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import Batch, Inserted, rfc3339, stream_name
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.dialect import typed_failures
from eventstore.backends.sql.models import Tables
from eventstore.backends.sql.reading import head_of
from eventstore.backends.sql.values import rows_in
from eventstore.backends.sql.ways import upsert
from eventstore.errors import (
    EventIdTaken,
    FactfoldError,
    OutcomeUnknown,
    StoreUnavailable,
    StreamArchived,
    StreamDeleted,
    WrongExpectedVersion,
)
from eventstore.identifiers import DELETED_HEAD, NO_VERSION, ExpectedVersion, StreamName, accepted_heads, check_category
from eventstore.store import AppendResult
from eventstore.topics import DELETED_TYPE, message_key

_PATIENCE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 0.02
# A server that restarts is back within seconds. The caller of a command should not wait much longer.
_LOST_SECONDS: Final = 10.0
_LOST_PAUSE_SECONDS: Final = 0.2
_CONFLICT: Final = "events_stream_version_key"


class Appender:
    """Appends batches; what the statement could not see is settled by reading the heads, or the ids, again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = database.dialect

    def append(self, batch: Batch, connection: Connection | None) -> list[AppendResult]:
        """Append in the caller's transaction, or in one of our own; one result a stream.

        Our own tries again while a lost race leaves the expectation met, as under ANY and STREAM_EXISTS, and looks for
        the ids of its events where the connection was lost. A repetition gets the results of the first append.
        """
        with typed_failures(self._database.engine, self._dialect):
            return self._append_own(batch) if connection is None else self._append_on(connection, batch)

    def _append_on(self, connection: Connection, batch: Batch) -> list[AppendResult]:
        # Looked for first: an id that is taken would cost the caller's transaction.
        if batch.events.named and (earlier := self._earlier(batch, connection)):
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
            raise OutcomeUnknown(
                f"the connection was lost during an append, and it is unknown whether it took place: {lost.message}",
                remedy="when the database answers again, append the same events under the same ids "
                "(NewEvent, error.ids): events that are stored already are not appended twice",
                place=", ".join(batch.streams.names[:3]),
                ids=tuple(batch.events.ids),
            ) from lost
        raise lost

    def _append_once(self, batch: Batch, *, repeated: bool) -> list[AppendResult]:
        """Append; what is refused because it is there already, under its own ids, is no refusal where it may be."""
        try:
            return self._insert(batch).results(batch)
        except (WrongExpectedVersion, EventIdTaken, StreamArchived):
            earlier = self._earlier(batch) if repeated else None
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

    def _earlier(self, batch: Batch, connection: Connection | None = None) -> list[AppendResult] | None:
        """Return the results of an append whose events are all there already, in the same places; else None."""
        columns, ids = self._database.tables.events.c, batch.events.ids
        names = ("id", "stream", "version", "schema_id", "ce_time", "order_xid", "position")
        query = select(*(columns[name] for name in names)).where(columns.payload.is_not(None))
        with self._database.statement(connection) as reading:
            rows = {row.id: row for row in rows_in(reading, query, columns.id, ids)}
        return batch.placed([rows[event_id] for event_id in ids]) if len(rows) == len(ids) else None

    def _was_lost(self, error: StoreUnavailable) -> bool:
        cause = error.__cause__
        return self._dialect.fails_over(cause) or (isinstance(cause, DBAPIError) and cause.connection_invalidated)

    def _check_lost_race(self, error: DBAPIError, batch: Batch) -> None:
        """Return where the append may be tried again, raise otherwise."""
        violated = self._dialect.violated(error)
        if violated == _CONFLICT:
            with self._database.statement() as connection:
                events = self._database.tables.events
                batch.check_heads([head_of(connection, events, name) for name in batch.streams.names])
        elif violated is not None:
            raise batch.id_taken() from error
        elif not self._dialect.is_passing(error):
            raise error


def _contended(batch: Batch) -> StoreUnavailable:
    return StoreUnavailable(
        f"other writers were faster on stream {batch.streams.names[0]!r}",
        remedy="append again in a new transaction, or spread the load over more streams",
        place=batch.streams.names[0],
    )


_PAGE: Final = 1000
# An append takes less than a millisecond, unless it is part of a longer transaction.
_PAUSE_SECONDS: Final = 0.005
_AT_ONCE: Final = 5_000  # tombstones of one insert
# A tombstone has these of its stream's last event: readers of one service alone take the deletion, too.
_SAME: Final = ("stream", "category", "partition", "topic", "ce_source")


class ClosedStreams:
    """Streams of a store that take no events: archived ones, until they are taken out, and deleted ones, for ever.

    No append to an archived stream succeeds any more once `archive_stream` has returned. An append that began before
    the mark was committed does not see it. Where one writer locks out the others there is none; elsewhere, a mark under
    an exact version is looked at again once all appends of that time are over.

    Rows without a payload take the places of deleted events. On the road to Kafka each is a record without a value,
    under the key and in the partition of its event. One more such row stands behind the last version, where a later
    writer finds it. It takes the place of the next event, and this also stops a concurrent writer.
    """

    tables: Tables
    _database: Database
    _clock: Callable[[], datetime]

    def archive_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> None:
        """Close a finished stream: it can be read as before, and appending to it raises StreamArchived.

        Its aggregate snapshot is deleted. Raises WrongExpectedVersion also for a stream without events. Raises
        StreamDeleted.
        """
        name, snapshots = str(stream_name(stream)), self.tables.snapshots
        with self._database.writing() as connection:
            self._hold(connection, name)
            self._check(name, expected, head_of(connection, self.tables.events, name))
            row = {"stream": name, "time": self._clock().astimezone(UTC)}
            mark = upsert(connection, self.tables.archived_streams).values(row).on_conflict_do_nothing()
            # Without the option, psycopg's answer is -1 for an INSERT.
            marked = connection.execute(mark, execution_options={"preserve_rowcount": True})
            connection.execute(delete(snapshots).where(snapshots.c.stream == name))
        if isinstance(expected, int):
            self._confirm(name, expected, own=bool(marked.rowcount))

    def _confirm(self, stream: str, expected: int, *, own: bool) -> None:
        """Check again after all appends that did not see the mark. Remove a mark of our own that came too late."""
        try:
            self._wait_for_appends_under_way(stream)
            with self._database.statement() as connection:
                self._check(stream, expected, head_of(connection, self.tables.events, stream))
        except FactfoldError:
            if own:
                self.unarchive_stream(stream)
            raise

    def _hold(self, connection: Connection, stream: str) -> None:
        """Let a deletion wait that comes between the look at a stream and its mark; one under way goes first."""
        columns = self.tables.events.c
        version = columns.version
        last = select(version).where(columns.stream == stream).order_by(version.desc()).limit(1)
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

    def unarchive_stream(self, stream: StreamName | str) -> None:
        """Let an archived stream take events again. Do nothing if it is not archived."""
        archived, name = self.tables.archived_streams, str(stream_name(stream))
        with self._database.writing() as connection:
            connection.execute(delete(archived).where(archived.c.stream == name))

    def is_archived(self, stream: StreamName | str) -> bool:
        """Say whether a stream is archived."""
        archived = self.tables.archived_streams.c.stream
        with self._database.statement() as connection:
            return connection.execute(select(archived).where(archived == str(stream_name(stream)))).first() is not None

    def archived_streams(self, category: str | None = None) -> Iterator[str]:
        """Yield the names of archived streams, all or a category's, in their order."""
        name = self.tables.archived_streams.c.stream
        query = select(name).order_by(name).limit(_PAGE)
        if category is not None:
            query = query.where(name.startswith(f"{check_category(category)}-", autoescape=True))
        return self._archived_pages(query.where(name > bindparam("last")))

    def _archived_pages(self, query: Select[Any]) -> Iterator[str]:
        last = ""
        while True:
            with self._database.statement() as connection:
                page = connection.execute(query, {"last": last}).scalars().all()
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1]

    def delete_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> int:
        """Delete a stream for good. Return how many events it had, 0 if there were none or it was deleted before.

        Its events and its aggregate snapshot are deleted. Rows without a payload take their places, and become
        tombstones of the same keys in topics. Appending to the stream raises StreamDeleted from now on. Raises
        WrongExpectedVersion, StoreUnavailable or StoreNotPrepared.
        """
        name, (low, high) = str(stream_name(stream)), accepted_heads(expected)
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                with self._database.writing() as connection:
                    last = self._last(connection, name)
                    if last is not None and last.type == DELETED_TYPE:
                        return 0
                    head = NO_VERSION if last is None else last.version
                    if not low <= head <= high:
                        remedy = "check the stream's name and its events. Expect the version of its last event, or any"
                        actual = None if last is None else head
                        raise WrongExpectedVersion(name, expected, actual, remedy=remedy)
                    return 0 if last is None else self._delete(connection, last)
            except DBAPIError as error:
                dialect = self._database.dialect
                if dialect.violated(error) is None and not dialect.is_passing(error):
                    raise
            # A writer was faster: chance keeps both from meeting again.
            self._database.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))  # noqa: S311
        raise StoreUnavailable(
            f"other writers were faster on stream {name!r} in every attempt",
            remedy="delete it when no service writes to it",
            place=name,
        )

    def _delete(self, connection: Connection, last: Row[Any]) -> int:
        events, columns = self.tables.events, self.tables.events.c
        conditions = (columns.stream == last.stream, columns.version <= last.version)
        places = select(columns.id, columns.order_xid, columns.position).where(*conditions)
        names = ["id", "order_xid", "position"]
        connection.execute(insert(self.tables.deleted_events).from_select(names, places))
        connection.execute(delete(events).where(*conditions))
        for table in (self.tables.snapshots, self.tables.archived_streams):
            connection.execute(delete(table).where(table.c.stream == last.stream))
        now = self._clock().astimezone(UTC)
        for first in range(0, last.version + 2, _AT_ONCE):
            versions = range(first, min(first + _AT_ONCE, last.version + 2))
            rows = [self._tombstone(last, version, now) for version in versions]
            self._database.dialect.insert_rows(connection, rows)
        return int(last.version) + 1

    def _last(self, connection: Connection, stream: str) -> Row[Any] | None:
        columns = self.tables.events.c
        query = select(*(columns[name] for name in ("version", "type", *_SAME))).where(columns.stream == stream)
        return connection.execute(query.order_by(columns.version.desc()).limit(1)).first()

    def _tombstone(self, last: Row[Any], version: int, now: datetime) -> dict[str, Any]:
        return {
            **{name: getattr(last, name) for name in _SAME},
            **dict.fromkeys(("payload", "correlation_id", "causation_id", "traceparent", "command")),
            "id": uuid4(),
            "version": version,
            "type": DELETED_TYPE,
            "schema_id": 0,
            "message_key": message_key(last.stream, version),
            "time": now,
            "ce_time": rfc3339(now),
        }
