"""Moments as the columns of timestamps are compared with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC) for year in (1, 9999))


def as_stored(connection: sa.Connection, micros: int) -> sa.ColumnElement[Any]:
    """A moment in microseconds since 1970, as a timestamp of this database; SQLite has text."""
    at = moment_of(micros)
    if connection.dialect.name == "postgresql":
        return sa.literal(at, sa.DateTime(timezone=True))
    return sa.literal(at.strftime("%Y-%m-%d %H:%M:%S.%fZ").rjust(27, "0"), sa.Text)


def moment_of(micros: int) -> datetime:
    """The same as Python has it; the nearest that it has."""
    low, high = ((one - _EPOCH) // timedelta(microseconds=1) for one in (_EARLIEST, _LATEST))
    return _EPOCH + timedelta(microseconds=min(max(micros, low), high))
