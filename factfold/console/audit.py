"""Records of actions: a line of the log each, and the last ones in memory for the pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Final
from uuid import uuid4

import structlog

from factfold.console.page import Outcome

_log = structlog.get_logger(__name__)

_REMEMBERED: Final = 50


@dataclass(frozen=True, slots=True)
class Record:
    """One action: when, where and on what it was done, and its outcome."""

    id: str
    time: datetime
    page: str
    action: str
    on: Mapping[str, str]
    client: str
    outcome: Outcome


class Audit:
    """Writes each action to the log as `console.action`, and remembers the last ones."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_REMEMBERED)
        self._lock = Lock()

    def note(self, page: str, action: str, *, on: Mapping[str, str], client: str, outcome: Outcome) -> Record:
        """Write an action down."""
        record = Record(uuid4().hex, datetime.now(UTC), page, action, dict(on), client, outcome)
        _log.info(
            "console.action", id=record.id, page=page, action=action, on=dict(on), client=client, done=outcome.done,
            outcome=outcome.text,
        )  # fmt: skip
        with self._lock:
            self._records.appendleft(record)
        return record

    def find(self, id_: str | None) -> Record | None:
        """Return a remembered action, None for another one."""
        with self._lock:
            return next((record for record in self._records if record.id == id_), None)

    @property
    def newest(self) -> tuple[Record, ...]:
        """The last actions, the newest first."""
        with self._lock:
            return tuple(self._records)
