"""What a Debezium connector says about its snapshots: records of its notification topic, typed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cdc.changes.change_records import Lookup, RecordReader
from cdc.errors import UndecodableChange
from eventstore.closing import Closing

if TYPE_CHECKING:
    from eventstore.kafka.admin import OffsetReader
    from eventstore.kafka.consumer import RangeReader
    from eventstore.settings import Settings
    from eventstore.topics import TopicRecord

# Between two looks for a topic that is not there yet.
_LOOK_SECONDS: Final = 0.2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
