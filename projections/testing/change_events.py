"""Change events in the form Debezium's connectors write them, for tests of views over captured tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from projections.tables import CapturedTable
from projections.testing.memory_log import MemoryLog


class ChangeWriter:
    """Writes the changes of tables into a log in memory, one position after another.

    Values are those that JSON has; ``at`` is the position of a change that comes late or again, ``committed`` the time
    of its commit in microseconds since 1970: as many seconds as its position, unless it is given.
    """

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.position = 1_000

    def put(
        self, table: CapturedTable, row: Mapping[str, Any], *, at: int | None = None, committed: int | None = None
    ) -> int:
        """Insert or update a row, null in the columns that are not given; returns the position of the change."""
        return self._write(table, row, "u", {**dict.fromkeys(table.columns), **row}, at, committed)

    def delete(
        self, table: CapturedTable, key: Mapping[str, Any], *, at: int | None = None, committed: int | None = None
    ) -> int:
        """Delete a row, with the tombstone behind; returns the position of the change."""
        found = self._write(table, key, "d", None, at, committed)
        self._log.append(table.topic, _key(table, key), None)
        return found

    def _write(
        self, table: CapturedTable, row: Mapping[str, Any], op: str, after: Any, at: int | None, committed: int | None
    ) -> int:
        if at is None:
            self.position += 1
        position = self.position if at is None else at
        time = position * 1_000_000 if committed is None else committed
        source = {"connector": "postgresql", "lsn": position, "snapshot": "false", "ts_us": time}
        change = {"op": op, "before": None, "after": after, "source": source}
        self._log.append(table.topic, _key(table, row), _json(change))
        return position


def _key(table: CapturedTable, row: Mapping[str, Any]) -> bytes:
    """The key as a connector writes it, in the table's order: equal keys are equal bytes."""
    return _json({c: row[c] for c in table.key})


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
