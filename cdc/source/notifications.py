"""Notifications of a Debezium connector about its snapshots, typed, and one requested snapshot as they report it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cdc.changes.change_records import Lookup, RecordReader
from cdc.errors import SnapshotFailed, UndecodableChange
from eventstore.closing import Closing

if TYPE_CHECKING:
    from eventstore.kafka.admin import OffsetReader
    from eventstore.kafka.consumer import RangeReader
    from eventstore.settings import Settings
    from eventstore.topics import TopicRecord


# Between two looks for a topic that is not there yet.
_LOOK_SECONDS: Final = 0.2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_READ: Final = frozenset({"SUCCEEDED", "EMPTY"})
_NOT_CAPTURED: Final = "UNKNOWN_SCHEMA"
_STOPPED: Final = "STOPPED"
_REMEDIES: Final = {
    _NOT_CAPTURED: "capture the table in the running connector too: factfold cdc apply, then ask again",
    "NO_PRIMARY_KEY": "name a surrogate key, or take a blocking snapshot",
    "SQL_EXCEPTION": "check the condition, and that the role may SELECT; the worker's log has the database's words",
    _STOPPED: "ask for the snapshot again",
}
_DEFAULT_REMEDY: Final = "read the worker's log, then ask for the snapshot again"


class Stage(StrEnum):
    """How far a snapshot is. TABLE_SCAN_COMPLETED and the stages of chunks speak of one table.

    Examples:
        >>> signals.pause().stage is Stage.PAUSED
        True
    """

    STARTED = "STARTED"
    RESOLVED = "DATA_COLLECTIONS_RESOLVED"
    IN_PROGRESS = "IN_PROGRESS"
    CHUNK_IN_PROGRESS = "TABLE_CHUNK_IN_PROGRESS"
    CHUNK_COMPLETED = "TABLE_CHUNK_COMPLETED"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"


class SnapshotKind(StrEnum):
    """Which snapshot is meant. A blocking one goes by the name of the initial one.

    Examples:
        >>> snapshots = [one for one in reader.up_to_now() if one.kind is SnapshotKind.INCREMENTAL]
    """

    INITIAL = "Initial Snapshot"
    INCREMENTAL = "Incremental Snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One notification of a connector.

    Attributes:
        id: The id of the signal for an incremental snapshot (of the last signal, if several wait), else a random one.
        connector: The topic prefix.
        kind: The kind of snapshot, or Debezium's own word.
        stage: The stage, or Debezium's own word.
        table: The current table.
        tables: All tables of the snapshot.
        status: The result of a table's scan, with `rows`, when it ends.
        chunk: The current chunk of `chunks`.

    Examples:
        >>> def show(notification: Notification) -> None:
        ...     print(notification.stage, notification.table, notification.rows)
        >>> read = signals.snapshot(["public.orders"]).wait(on_notification=show)
    """

    id: str
    connector: str
    kind: SnapshotKind | str
    stage: Stage | str
    time: datetime
    tables: tuple[str, ...] = ()
    table: str | None = None
    status: str | None = None
    rows: int | None = None
    chunk: int | None = None
    chunks: int | None = None


def read_notification(reader: RecordReader, value: bytes | None, place: str) -> Notification:
    """Read one record's value; UndecodableChange."""
    body = {} if value is None else reader.read(value, place)[0]
    try:
        return _notification(body)
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        raise UndecodableChange(
            "the record is no notification of a Debezium connector",
            remedy="check which writer fills this topic",
            place=place,
        ) from error


def _notification(body: Mapping[str, Any]) -> Notification:
    data = body["additional_data"] or {}
    return Notification(
        id=body["id"],
        connector=data.get("connector_name", ""),
        kind=_known(SnapshotKind, body["aggregate_type"]),
        stage=_known(Stage, body["type"]),
        time=_EPOCH + timedelta(milliseconds=body["timestamp"]),
        tables=tuple(filter(None, data.get("data_collections", "").split(","))),
        table=data.get("scanned_collection") or data.get("current_collection_in_progress"),
        status=data.get("status"),
        rows=_number(data.get("total_rows_scanned")),
        chunk=_number(data.get("chunk_index")),
        chunks=_number(data.get("total_chunks")),
    )


def _known(kinds: type[StrEnum], word: str) -> Any:
    return kinds(word) if word in set(kinds) else word


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


class NotificationReader(Closing):
    """Reads a notification topic: committed records only. A topic that does not exist yet is empty.

    Args:
        settings: The settings of Kafka.
        topic: The topic.
        connector: Only notifications of this topic prefix.
        whole: Read from the topic's beginning instead of from now on.
        schemas: Finds the schemas of Avro records, such as `ConfluentRegistry.schema`.

    Examples:
        >>> with NotificationReader(settings, "shop.notifications", whole=True) as reader:
        ...     for notification in reader.up_to_now():
        ...         print(notification.stage, notification.table)
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        connector: str | None = None,
        whole: bool = False,
        schemas: Lookup | None = None,
    ) -> None:
        from eventstore.kafka.admin import OffsetReader  # needs the extra kafka
        from eventstore.kafka.consumer import RangeReader  # needs the extra kafka

        self._topic, self._connector = topic, connector
        self._values = RecordReader("value", schemas)
        self._offsets: OffsetReader = OffsetReader(settings)
        self._reader: RangeReader = RangeReader(settings)
        self._begun = False
        if self._offsets.existing([topic]):
            self._begin(whole=whole)

    def poll(self, timeout: float) -> list[Notification]:
        """Return what arrived within `timeout` seconds. Raises BrokerUnreachable or UndecodableChange."""
        if not self._begun and self._offsets.existing([self._topic]):
            self._begin(whole=True)
        if not self._begun:
            time.sleep(min(timeout, _LOOK_SECONDS))
        return list(self._mine(self._reader.poll(timeout) if self._begun else []))

    def up_to_now(self) -> Iterator[Notification]:
        """Yield what the topic holds now and was not read before."""
        if self._begun:
            ends = self._offsets.end_offsets([self._topic])
            yield from self._mine(self._reader.read_up_to(ends))

    def _mine(self, records: Iterable[TopicRecord]) -> Iterator[Notification]:
        notifications = (read_notification(self._values, record.value, record.place) for record in records)
        return (one for one in notifications if self._connector in (None, one.connector))

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        self._offsets.close()

    def _begin(self, *, whole: bool) -> None:
        ask = self._offsets.beginning_offsets if whole else self._offsets.end_offsets
        self._reader.seek(ask([self._topic]))
        self._begun = True


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that a snapshot has read, with the number of rows.

    Examples:
        >>> for read in signals.snapshot(["public.orders"]).wait():
        ...     print(read.table, read.rows)
        public.orders 200
    """

    table: str
    rows: int


class AwaitedSnapshot:
    """The notifications of one snapshot so far.

    A signal that arrives while an incremental snapshot runs is put behind it, and from then on Debezium tells of both
    by the new signal's id: so the end of all that wait is the end of each. After a stop it says COMPLETED first and
    ABORTED then; tables without a scan show the difference. A blocking snapshot goes by random ids, so the first
    that starts after the signal is taken for it.
    """

    def __init__(self, signal: str, kind: SnapshotKind, tables: Sequence[str]) -> None:
        self.taken = False
        self.ended = False
        self._signal, self._kind, self._tables = signal, kind, tables
        self._status: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._last: Notification | None = None

    def hear(self, notification: Notification) -> bool:
        """Take one notification in; whether it is of this snapshot."""
        if notification.kind != self._kind or notification.stage == Stage.SKIPPED:
            return False
        if not self.taken and not self._is_first(notification):
            return False
        self.taken, self._last = True, notification
        if notification.stage == Stage.TABLE_SCAN_COMPLETED and notification.table is not None:
            self._status[notification.table] = notification.status or ""
            self._rows[notification.table] = notification.rows or 0
        elif notification.stage == Stage.RESOLVED and self._kind is SnapshotKind.INITIAL:
            self._status |= {table: _NOT_CAPTURED for table in self._tables if table not in notification.tables}
        elif notification.stage in (Stage.COMPLETED, Stage.ABORTED):
            self._end(notification)
        return True

    def result(self, connector: str) -> tuple[TableRead, ...]:
        """Return what was read; SnapshotFailed where a table was not."""
        wrong = {t: s for t in self._tables if (s := self._status.get(t, _STOPPED)) not in _READ}
        if not wrong:
            return tuple(TableRead(table, self._rows[table]) for table in self._tables)
        unread = ", ".join(f"{table} {status}" for table, status in wrong.items())
        worst = next((s for s in wrong.values() if s != _STOPPED), _STOPPED)
        raise SnapshotFailed(
            f"connector {connector!r} ended the snapshot without {len(wrong)} of {len(self._tables)} tables: {unread}",
            remedy=_REMEDIES.get(worst, _DEFAULT_REMEDY),
            place=f"signal {self._signal}",
            tables=wrong,
            code="snapshot-aborted" if worst == _STOPPED else None,
        )

    def summary(self) -> str:
        """One phrase: how many tables are read, and where it stands."""
        last = self._last
        at = "" if last is None or last.table is None else f", {last.table}"
        chunks = "" if last is None or last.chunks is None else f", chunk {last.chunk} of {last.chunks}"
        read = sum(table in self._status for table in self._tables)
        return f"{read} of {len(self._tables)} tables read{at}{chunks}"

    def _is_first(self, notification: Notification) -> bool:
        is_started = notification.stage == Stage.STARTED
        return is_started if self._kind is SnapshotKind.INITIAL else notification.id == self._signal

    def _end(self, notification: Notification) -> None:
        if notification.stage == Stage.ABORTED and notification.tables:
            # Some tables were left out, and it goes on with the others.
            self._status |= {t: _STOPPED for t in self._tables if t in notification.tables and t not in self._status}
            self.ended = all(table in self._status for table in self._tables)
        else:
            self.ended = True
