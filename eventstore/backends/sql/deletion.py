"""A stream is deleted: its events go, and rows without a payload take their places.

Such a row is a record without a value on the road to Kafka, under the key and in the partition of the event that was
there. One more stands behind the last version. A later writer finds it, and because it takes the place of the next
event, it also stops a concurrent writer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, insert, select
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import rfc3339
from eventstore.backends.sql.database import Database
from eventstore.errors import StoreUnavailable, WrongExpectedVersion
from eventstore.identifiers import NO_VERSION, ExpectedVersion, accepted_heads
from eventstore.topics import DELETED_TYPE, message_key

_PATIENCE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 0.02
_AT_ONCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class Deletion:
    """Which stream is to be deleted, and what its writer believes of it."""

    stream: str
    expected: ExpectedVersion

    def check(self, head: int) -> None:
        """Raise WrongExpectedVersion where the stream stands elsewhere."""
        low, high = accepted_heads(self.expected)
        if not low <= head <= high:
            remedy = "check the stream's name and its events. Expect the version of its last event, or any"
            raise WrongExpectedVersion(self.stream, self.expected, None if head == NO_VERSION else head, remedy=remedy)


class Deleter:
    """Deletes streams, each in a transaction of its own."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._events = database.tables.events
        self._places = database.tables.deleted_events
        self._snapshots, self._archived = database.tables.snapshots, database.tables.archived_streams
        self._clock = clock

    def delete(self, deletion: Deletion) -> int:
        """Delete a stream; returns how many events it had, 0 where it was deleted before or never was."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                with self._database.writing() as connection:
                    return self._delete_on(connection, deletion)
            except DBAPIError as error:
                dialect = self._database.dialect
                if dialect.violated(error) is None and not dialect.is_passing(error):
                    raise
            # A writer was faster: chance keeps both from meeting again.
            self._database.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))  # noqa: S311
        raise StoreUnavailable(
            f"other writers were faster on stream {deletion.stream!r} in every attempt",
            remedy="delete it when no service writes to it",
            place=deletion.stream,
        )

    def _delete_on(self, connection: Connection, deletion: Deletion) -> int:
        last = self._last(connection, deletion.stream)
        if last is not None and last.type == DELETED_TYPE:
            return 0
        deletion.check(NO_VERSION if last is None else last.version)
        if last is None:
            return 0
        columns = self._events.c
        conditions = (columns.stream == deletion.stream, columns.version <= last.version)
        places = select(columns.id, columns.order_xid, columns.position).where(*conditions)
        connection.execute(insert(self._places).from_select(["id", "order_xid", "position"], places))
        connection.execute(delete(self._events).where(*conditions))
        for table in (self._snapshots, self._archived):
            connection.execute(delete(table).where(table.c.stream == deletion.stream))
        now = self._clock().astimezone(UTC)
        for first in range(0, last.version + 2, _AT_ONCE):
            versions = range(first, min(first + _AT_ONCE, last.version + 2))
            rows = [self._tombstone(last, version, now) for version in versions]
            self._database.dialect.insert_rows(connection, rows)
        return int(last.version) + 1

    def _last(self, connection: Connection, stream: str) -> Row[Any] | None:
        columns = self._events.c
        names = ("stream", "version", "type", "category", "partition", "topic", "ce_source")
        query = select(*(columns[name] for name in names)).where(columns.stream == stream)
        return connection.execute(query.order_by(columns.version.desc()).limit(1)).first()

    def _tombstone(self, last: Row[Any], version: int, now: datetime) -> dict[str, Any]:
        return {
            "id": uuid4(),
            "stream": last.stream,
            "version": version,
            "category": last.category,
            "type": DELETED_TYPE,
            "schema_id": 0,
            "payload": None,
            "message_key": message_key(last.stream, version),
            "partition": last.partition,
            "topic": last.topic,
            "ce_source": last.ce_source,  # readers of that service alone take the deletion, too
            "time": now,
            "ce_time": rfc3339(now),
            "correlation_id": None,
            "causation_id": None,
            "traceparent": None,
        }
