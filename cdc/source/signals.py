"""Signals that let a streaming connector take a snapshot again, and the notifications of its progress.

Signals are rows of the signal table (`signal_table`), notifications come by a topic (`notifications`). Debezium
does not answer a pause, a resume or a stop when no incremental snapshot runs, and a signal to a connector that does
not run waits in the source's log until it does.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cdc.changes.change_records import Lookup
from cdc.connect.status import RUNNING
from cdc.connectors.encodings import JSON_CONVERTER
from cdc.errors import ConnectorTimeout, ConnectUnavailable, UnknownConnector, UnsupportedEncoding
from cdc.identifiers import TableName, check_identifier
from cdc.source.notifications import AwaitedSnapshot, Notification, NotificationReader, SnapshotKind, Stage, TableRead
from cdc.source.signal_table import declared_signal_table, not_declared

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from cdc.connectors.postgres import PostgresSource
    from eventstore.settings import Settings

# A connector at rest answers within half a second; one that is behind its source answers when it has come to the
# signal.
ANSWER_SECONDS: Final = 60.0
SNAPSHOT_SECONDS: Final = 3600.0
_POLL_SECONDS: Final = 0.2

Listen = Callable[[Notification], None]
_STILL_BEHIND: Final = (
    "see whether the connector is far behind its source, or takes an initial snapshot: it answers when it comes to it"
)


@dataclass(frozen=True)
class Signals:
    """Sends signals to the connector of one source.

    Args:
        engine: A role that may insert into the signal table.
        source: The declaration, with a signal table and a notification topic.
        settings: The settings of Kafka.
        client: The worker, whose connector state explains a missing answer.
        schemas: Finds the schemas of Avro records, such as `ConfluentRegistry.schema`.

    Raises:
        InvalidConnector: The source declares no signal table or no notification topic.
        UnsupportedEncoding: The notifications could not be read.
        SourceNotReady: The database is not ready. Raised by the methods.

    Examples:
        >>> Signals(engine, source, settings).snapshot(["public.customers"]).wait()
    """

    engine: Engine
    source: PostgresSource
    settings: Settings
    client: ConnectClient | None = field(default=None, repr=False)
    schemas: Lookup | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("signal_table", "notifications_topic"):
            if getattr(self.source, name) is None:
                raise not_declared(self.source.name, name)
        # Before anything is sent: an answer that cannot be read looks like a failure of what was asked.
        if self.schemas is None and self.source.config()["value.converter"] != JSON_CONVERTER:
            raise _unreadable(self.source)

    def snapshot(
        self, tables: Collection[str], *, where: Mapping[str, str] | None = None, surrogate_key: str | None = None
    ) -> Signalled:
        """Ask for an incremental snapshot: chunks of rows between the changes, which go on arriving.

        Args:
            tables: The tables.
            where: The SQL condition of the rows, for a table. Debezium runs it as its role: never build it from values
                of other people.
            surrogate_key: The column to read by, instead of the primary key.

        Raises:
            InvalidConnector: A table is not captured.
        """
        named = self._captured(tables)
        conditions = self._conditions(named, where or {})
        data: dict[str, Any] = {"type": "incremental", "data-collections": named, "additional-conditions": conditions}
        if surrogate_key is not None:
            data["surrogate-key"] = check_identifier(surrogate_key, "column")
        return self._signalled("execute-snapshot", data, SnapshotKind.INCREMENTAL, named)

    def blocking_snapshot(self, tables: Collection[str], *, where: Mapping[str, str] | None = None) -> Signalled:
        """Ask for a snapshot in one pass, during which the stream of changes waits. It needs no primary key.

        `where` is as for `snapshot`. Raises InvalidConnector for a table that is not captured.
        """
        named = self._captured(tables)
        queries = {table: _query(table, condition) for table, condition in (where or {}).items()}
        conditions = self._conditions(named, queries)
        data = {"type": "blocking", "data-collections": named, "additional-conditions": conditions}
        return self._signalled("execute-snapshot", data, SnapshotKind.INITIAL, named)

    def stop(self, tables: Collection[str] = (), *, timeout: float = ANSWER_SECONDS) -> Notification:
        """Stop the incremental snapshot, or remove some tables from it, and wait until that is done.

        Raises ConnectorTimeout if none runs, or if it is paused: Debezium stops at the next chunk.
        """
        data: dict[str, Any] = {"type": "incremental"}
        if tables:
            data["data-collections"] = self._captured(tables)
        return self._answered("stop-snapshot", data, Stage.ABORTED, timeout=timeout, tables=tables)

    def pause(self, *, timeout: float = ANSWER_SECONDS) -> Notification:
        """Pause the incremental snapshot, and wait until it pauses. Raises ConnectorTimeout if none runs."""
        return self._answered("pause-snapshot", {}, Stage.PAUSED, timeout=timeout)

    def resume(self, *, timeout: float = ANSWER_SECONDS) -> Notification:
        """Resume a paused incremental snapshot, and wait until it runs. Raises ConnectorTimeout if none is paused."""
        return self._answered("resume-snapshot", {}, Stage.RESUMED, timeout=timeout)

    def listen(self, *, whole: bool = False) -> NotificationReader:
        """Open the connector's notifications, from now on or from the topic's beginning. Close it after use."""
        topic, prefix = self.source.notifications_topic or "", self.source.topic_prefix
        return NotificationReader(self.settings, topic, connector=prefix, whole=whole, schemas=self.schemas)

    def unanswered(self, what: str, timeout: float, *, otherwise: str) -> ConnectorTimeout:
        """Build the error of a missing answer, with the cause as far as the worker knows it."""
        cause, remedy = self._cause() or ("", otherwise)
        return ConnectorTimeout(
            f"connector {self.source.name!r} said nothing to {what} in {timeout:g} s{cause}",
            remedy=remedy,
            place=f"{self.source.signal_table} of {self.source.host}:{self.source.port}/{self.source.database}",
            code="signal-not-answered",
        )

    def _captured(self, tables: Collection[str]) -> list[str]:
        for table in tables:
            self.source.topic(table)
        return list(dict.fromkeys(tables))

    def _conditions(self, tables: Sequence[str], where: Mapping[str, str]) -> list[dict[str, str]]:
        for table in where:
            if table not in tables:
                self.source.topic(table)
        # The name as it is: an incremental snapshot takes it for a regular expression, in which its dot fits, and a
        # blocking one for a name, so that one written public\.items would lose its condition without a word.
        return [{"data-collection": table, "filter": where[table]} for table in tables if table in where]

    def _signalled(self, kind: str, data: Mapping[str, Any], snapshot: SnapshotKind, tables: list[str]) -> Signalled:
        # Opened before the signal is sent: what is said afterwards is the answer.
        reader = self.listen()
        try:
            signal = self._send(kind, data)
        except BaseException:
            reader.close()
            raise
        return Signalled(signal, self, reader, AwaitedSnapshot(signal, snapshot, tuple(tables)))

    def _send(self, kind: str, data: Mapping[str, Any]) -> str:
        from cdc.source.catalogue import typed_errors  # SQLAlchemy is loaded when it is first used

        table, signal = declared_signal_table(self.source), str(uuid.uuid4())
        with typed_errors(self.engine), self.engine.begin() as connection:
            statement = f"INSERT INTO {table.quoted} (id, type, data) VALUES (%s, %s, %s)"  # noqa: S608 - quoted
            connection.exec_driver_sql(statement, (signal, kind, json.dumps(data)))
        return signal

    def _answered(
        self, kind: str, data: Mapping[str, Any], stage: Stage, *, timeout: float, tables: Collection[str] = ()
    ) -> Notification:
        """Send a signal and return its answer, which names no signal: the next such word that names the tables."""
        with self.listen() as reader:
            self._send(kind, data)
            end = time.monotonic() + timeout
            while time.monotonic() < end:
                for notification in reader.poll(_POLL_SECONDS):
                    heard = (notification.kind, notification.stage) == (SnapshotKind.INCREMENTAL, stage)
                    if heard and {*tables} <= {*notification.tables}:
                        return notification
        raise self.unanswered(
            kind,
            timeout,
            otherwise="see by `factfold cdc notifications` whether an incremental snapshot runs: only one that does "
            "can be paused or stopped, and only a paused one resumed, and must be before it is stopped",
        )

    def _cause(self) -> tuple[str, str] | None:
        if self.client is None:
            return None
        name = self.source.name
        try:
            status, config = self.client.status(name), self.client.config(name)
        except UnknownConnector:
            return ": the worker knows no such connector", f"apply it: factfold cdc apply, then see status {name}"
        except ConnectUnavailable as error:
            return f": {error.message}", error.remedy
        if status.state != RUNNING or not status.running:
            return f": it stands {status.summary()}", f"factfold cdc resume {name}, or restart it; the signal waits"
        return _undeclared(self.source, config)


def _unreadable(source: PostgresSource) -> UnsupportedEncoding:
    return UnsupportedEncoding(
        f"connector {source.name!r} writes its notifications as it writes its changes, and the schemas "
        "of those are not given",
        remedy="give the registry's: Signals(…, schemas=ConfluentRegistry(…).schema), or FACTFOLD_REGISTRY__URL",
        place=source.notifications_topic,
    )


def _query(table: str, condition: str) -> str:
    return f"SELECT * FROM {TableName.parse(table).quoted} WHERE ({condition})"  # noqa: S608 - quoted; code by contract


def _undeclared(source: PostgresSource, running: Mapping[str, str]) -> tuple[str, str] | None:
    declared = source.config()
    for key in ("signal.data.collection", "notification.sink.topic.name", "table.include.list"):
        if running.get(key) != declared.get(key):
            return f": it runs with another {key} than declared", f"apply it: factfold cdc apply, for {source.name}"
    return None


class Signalled:
    """A snapshot that was asked for. Call `wait` once, or `close`.

    Examples:
        >>> signalled = signals.snapshot(["public.orders"])
        >>> signalled.wait(timeout=600)
        (TableRead(table='public.orders', rows=200),)
    """

    def __init__(self, signal: str, signals: Signals, reader: NotificationReader, awaited: AwaitedSnapshot) -> None:
        self.id = signal
        self._signals = signals
        self._reader = reader
        self._awaited = awaited

    def wait(
        self,
        *,
        timeout: float = SNAPSHOT_SECONDS,
        answer_within: float = ANSWER_SECONDS,
        on_notification: Listen = lambda notification: None,
    ) -> tuple[TableRead, ...]:
        """Wait until every table was read, and return how many rows each had.

        Args:
            timeout: Seconds until the snapshot ends.
            answer_within: Seconds until the first answer.
            on_notification: Is called with each notification.

        Raises:
            ConnectorTimeout: There was no answer, or the snapshot did not end in time, and goes on.
            SnapshotFailed: It was stopped, or some tables were not read.
        """
        with self._reader:
            if not self._hear(min(answer_within, timeout), on_notification, until_ended=timeout):
                patience = min(answer_within, timeout)
                raise self._signals.unanswered(f"signal {self.id}", patience, otherwise=_STILL_BEHIND)
        if not self._awaited.ended:
            raise self._unfinished(timeout)
        return self._awaited.result(self._signals.source.name)

    def close(self) -> None:
        """Close the reader without waiting for the snapshot."""
        self._reader.close()

    def _hear(self, until_taken: float, listen: Listen, *, until_ended: float) -> bool:
        """Listen until the snapshot ends, or the seconds for its beginning or its end are over; whether it began."""
        begun = time.monotonic()
        while not self._awaited.ended:
            end = begun + (until_ended if self._awaited.taken else until_taken)
            if time.monotonic() >= end:
                break
            for notification in self._reader.poll(_POLL_SECONDS):
                if self._awaited.hear(notification):
                    listen(notification)
        return self._awaited.taken

    def _unfinished(self, timeout: float) -> ConnectorTimeout:
        return ConnectorTimeout(
            f"the snapshot by connector {self._signals.source.name!r} was not done after {timeout:g} s: "
            f"{self._awaited.summary()}",
            remedy="follow it with `factfold cdc notifications --follow`, or give it more time: it goes on",
            place=f"signal {self.id}",
            code="snapshot-unfinished",
        )
