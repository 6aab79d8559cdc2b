"""One requested snapshot, as its notifications report it; no clock and no server in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdc.errors import SnapshotAborted, SnapshotFailed
from cdc.source.notifications import Notification, SnapshotKind, Stage

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
            self._status[notification.table], self._rows[notification.table] = (
                notification.status or "",
                notification.rows or 0,
            )
        elif notification.stage == Stage.RESOLVED and self._kind is SnapshotKind.INITIAL:
            self._status |= {table: _NOT_CAPTURED for table in self._tables if table not in notification.tables}
        elif notification.stage in (Stage.COMPLETED, Stage.ABORTED):
            self._end(notification)
        return True

    def result(self, connector: str) -> tuple[TableRead, ...]:
        """Return what was read; SnapshotAborted, SnapshotFailed where a table was not."""
        wrong = {t: s for t in self._tables if (s := self._status.get(t, _STOPPED)) not in _READ}
        if not wrong:
            return tuple(TableRead(table, self._rows[table]) for table in self._tables)
        unread = ", ".join(f"{table} {status}" for table, status in wrong.items())
        worst = next((s for s in wrong.values() if s != _STOPPED), _STOPPED)
        raise (SnapshotAborted if worst == _STOPPED else SnapshotFailed)(
            f"connector {connector!r} ended the snapshot without {len(wrong)} of {len(self._tables)} tables: {unread}",
            remedy=_REMEDIES.get(worst, _DEFAULT_REMEDY),
            place=f"signal {self._signal}",
            tables=wrong,
        )

    def summary(self) -> str:
        """One phrase: how many tables are read, and where it stands."""
        last = self._last
        at = "" if last is None or last.table is None else f", {last.table}"
        chunks = "" if last is None or last.chunks is None else f", chunk {last.chunk} of {last.chunks}"
        read = sum(table in self._status for table in self._tables)
        return f"{read} of {len(self._tables)} tables read{at}{chunks}"

    def _is_first(self, notification: Notification) -> bool:
        return (
            notification.stage == Stage.STARTED
            if self._kind is SnapshotKind.INITIAL
            else notification.id == self._signal
        )

    def _end(self, notification: Notification) -> None:
        if notification.stage == Stage.ABORTED and notification.tables:
            # Some tables were left out, and it goes on with the others.
            self._status |= {t: _STOPPED for t in self._tables if t in notification.tables and t not in self._status}
            self.ended = all(table in self._status for table in self._tables)
        else:
            self.ended = True
