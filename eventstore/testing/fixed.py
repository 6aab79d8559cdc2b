"""A clock that stands still and ids that count: what a test compares must not depend on when it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

__all__ = ["FixedClock", "FixedIds"]


class FixedClock:
    """A clock that stands still until it is moved, for the `clock` of stores.

    Examples:
        >>> clock = FixedClock()
        >>> store = MemoryEventStore(clock=clock)
        >>> clock.advance(timedelta(days=1))
    """

    def __init__(self, moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Tell the moment."""
        return self.moment

    def advance(self, by: timedelta) -> datetime:
        """Move the clock, backwards if `by` is negative, and return the new moment."""
        self.moment += by
        return self.moment


class FixedIds:
    """UUIDs that count from 1, for the `new_id` of stores and dispatchers.

    Examples:
        >>> store = MemoryEventStore(new_id=FixedIds())
    """

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> UUID:
        """Give the next one."""
        self._last += 1
        return UUID(int=self._last)
