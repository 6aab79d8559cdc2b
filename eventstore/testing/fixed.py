"""A clock that stands still and ids that count: what a test compares must not depend on when it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

__all__ = ["FixedClock", "FixedIds"]


class FixedClock:
    """Tells the same moment until it is moved. For ``MemoryEventStore(clock=…)`` and ``SqlEventStore(clock=…)``."""

    def __init__(self, moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Tell the moment."""
        return self.moment

    def advance(self, by: timedelta) -> datetime:
        """Move on, or back for less than nothing, and return the new moment."""
        self.moment += by
        return self.moment


class FixedIds:
    """Gives UUIDs that count from 1. For the ``new_id`` of stores and dispatchers."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> UUID:
        """Give the next one."""
        self._last += 1
        return UUID(int=self._last)
