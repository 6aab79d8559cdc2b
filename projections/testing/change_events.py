"""Change events in the form Debezium's connectors write them, for tests of views over captured tables."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from projections.declaring.tables import CapturedTable
from projections.errors import InvalidDefinition
from projections.testing.memory_log import MemoryLog


class ChangeWriter:
    """Writes the changes of tables into a log in memory, one position after another.

    Values are those that JSON has, and decimals, dates, times, UUIDs, bytes and members of enums: these are written as
    Debezium writes them under our connectors' settings. ``at`` is the position of a change that comes late or again,
    ``committed`` the time of its commit in microseconds since 1970: by default as many seconds as its position.
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
        position = self._write(table, key, "d", None, at, committed)
        self._log.append(table.topic, _key(table, key), None)
        return position

    def _write(
        self, table: CapturedTable, row: Mapping[str, Any], op: str, after: Any, at: int | None, committed: int | None
    ) -> int:
        if at is None:
            self.position += 1
        position = self.position if at is None else at
        time = position * 1_000_000 if committed is None else committed
        source = {"connector": "postgresql", "lsn": position, "snapshot": "false", "ts_us": time}
        change = {"op": op, "before": None, "after": after and _record_of(table, after), "source": source}
        self._log.append(table.topic, _key(table, row), _json(change))
        return position


def _key(table: CapturedTable, row: Mapping[str, Any]) -> bytes:
    """The key as a connector writes it, in the table's order: equal keys are equal bytes."""
    return _json(_record_of(table, {c: row[c] for c in table.key}))


def _record_of(table: CapturedTable, row: Mapping[str, Any]) -> dict[str, Any]:
    return {table.record_name(column): value for column, value in row.items()}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_spelt).encode()


def _spelt(value: Any) -> Any:
    """What JSON has no form for, as Debezium spells it; a time without a zone is UTC."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return f"{value.isoformat()}Z"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.name
    raise InvalidDefinition(
        f"a {type(value).__name__} is no value of a captured column",
        remedy="give numbers, texts, decimals, dates, times, UUIDs, bytes or members of an enum",
    )
