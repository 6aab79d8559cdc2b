"""Times of the database's clock by which all that was in the log is applied: what is due by then may be let go of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from projections.logs.offsets import reached
from projections.stores import finals
from projections.stores.runs import Progress

if TYPE_CHECKING:
    from projections.stores.port import Transactions

_LOOK_SECONDS: Final = 0.5


class Moments:
    """The newest such time of a run.

    The clock is read before a batch, and before the ends of the log. A writer that never rests therefore holds up
    nothing: the batch goes to these ends, whatever comes behind them meanwhile.

    Attributes:
        passed: The time in microseconds since 1970, None before the first.
    """

    def __init__(self, store: Transactions) -> None:
        self._store = store
        self._next = 0.0
        self._waiting: tuple[int, Progress] | None = None
        self.passed: int | None = None

    def look(self, ends: Callable[[], Progress], *, at_once: bool = False) -> Progress:
        """Look at the log's ends. Read the clock before, if it is time to or `at_once`.

        The clock is not read while an earlier time is still waited for.
        """
        if self._waiting is not None or (time.monotonic() < self._next and not at_once):
            return ends()
        self._next = time.monotonic() + _LOOK_SECONDS
        with self._store.looking() as connection:
            at = finals.now(connection)
        self._waiting = at, ends()
        return self._waiting[1]

    def applied(self, progress: Progress) -> bool:
        """Say how far the run is. Return whether another time has passed."""
        if self._waiting is None or not reached(progress, self._waiting[1]):
            return False
        self.passed, self._waiting = self._waiting[0], None
        return True
