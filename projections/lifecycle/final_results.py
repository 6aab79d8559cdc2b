"""Final results given out by the runner itself, after a batch, as the database's clock goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from projections.stores import finals
from projections.stores.layout import GenerationLayout
from projections.stores.runs import Run

if TYPE_CHECKING:
    from projections.stores.port import Transactions


class FinalsDue:
    """The final results of one serving run that are due."""

    def __init__(self, store: Transactions, run: Run, layout: GenerationLayout) -> None:
        self._store = store
        self._run, self._layout = run, layout

    def give_out(self, at: int) -> Mapping[str, int]:
        """Give out what is due by a time of `Moments`, by view."""
        with self._store.looking() as connection:
            if not finals.is_due(connection, self._layout, self._run, at=at):
                return {}
        with self._store.transaction() as connection:
            return finals.give_out(connection, self._layout, self._run, at=at)
