"""Final results given out by the runner itself, between two batches, as the database's clock goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from projections.logs.port import OpenLog
from projections.logs.ranges import reached
from projections.stores import finals
from projections.stores.layout import GenerationLayout
from projections.stores.runs import Progress, Run

if TYPE_CHECKING:
    from projections.stores.port import Transactions

_LOOK_SECONDS: Final = 0.5


class FinalsDue:
    """The final results of one serving run that are due."""

    def __init__(
        self, store: Transactions, log: OpenLog, run: Run, layout: GenerationLayout, topics: Sequence[str]
    ) -> None:
        self._store, self._log = store, log
        self._run, self._layout, self._topics = run, layout, topics
        self._next = 0.0

    def give_out(self, progress: Progress) -> Mapping[str, int]:
        """Give out what is due, by view, where it is time to look and the run has applied all that is in the log.

        The clock is read before the log's ends: what is in the log by then is applied.
        """
        if time.monotonic() < self._next:
            return {}
        self._next = time.monotonic() + _LOOK_SECONDS
        with self._store.looking() as connection:
            at = finals.now(connection)
        if not reached(progress, self._log.end_offsets(list(self._topics))):
            return {}
        with self._store.looking() as connection:
            if not finals.is_due(connection, self._layout, self._run, at=at):
                return {}
        with self._store.transaction() as connection:
            return finals.give_out(connection, self._layout, self._run, at=at)
