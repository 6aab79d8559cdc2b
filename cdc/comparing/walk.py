"""The walk of each comparison of a table with a state: settle, repair what differs, settle again, report by key."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from cdc.comparing.report import (
    ComparisonProgress,
    Key,
    OnProgress,
    Rows,
    SeenRow,
    StateTable,
    TableComparison,
    ordered,
)

PATIENCE: Final = 120.0
_SHOWN: Final = 20  # differing keys whose columns are named
ROUNDS: Final = 6
_AT_ONCE: Final = 10_000  # keys of one query
_IN_MEMORY: Final = 100_000  # keys of one wait; half a kilobyte each


@dataclasses.dataclass(frozen=True)
class Walk(ABC):
    """The comparison of one table with one state. Each kind of database brings its own queries."""

    table: str
    state: StateTable
    on_progress: OnProgress

    @abstractmethod
    def settle(self, suspects: Sequence[Key]) -> Settled:
        """Look at keys until what they show is certain."""

    @abstractmethod
    def repair(self, settled: Settled) -> str | None:
        """Repair what differs, and return why it may differ still."""

    @abstractmethod
    def columns(self, keys: Sequence[Key]) -> Mapping[Key, tuple[str, ...]]:
        """Return the names of the columns in which some rows differ."""

    def compared(self, report: TableComparison, suspects: Sequence[Key], *, repairs: bool) -> TableComparison:
        """Complete a report of the two tables with the keys that differ."""
        settled = self.settle(suspects)
        if repairs and settled.wrong:
            before, unrepaired = settled, self.repair(settled)
            settled = self.settle(before.wrong)
            repaired = len({*before.wrong} - {*settled.wrong} - {*settled.changing})
            settled.changing += before.changing
            report = dataclasses.replace(report, repaired=repaired, unrepaired=unrepaired if settled.wrong else None)
        differing = self._in_order(settled.differing)
        return dataclasses.replace(
            report,
            source_rows=settled.source_rows or report.source_rows,
            state_rows=settled.state_rows or report.state_rows,
            missing=self._in_order(settled.missing),
            extra=self._in_order(settled.extra),
            differing=differing,
            changing=self._in_order(settled.changing),
            differing_columns=self.columns(differing[:_SHOWN]) if differing else {},
        )

    def tell(self, step: str, rows: int, total: int) -> None:
        """Tell how far the comparison is."""
        self.on_progress(ComparisonProgress(self.table, step, rows, total))

    def _in_order(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        kinds = [self.state.forms[name].kind for name in self.state.key]
        return tuple(sorted(keys, key=lambda key: ordered(key, kinds)))


@dataclass
class Settled:
    """What is certain of the suspects: keys by kind of difference, and the state's rows at extra and other keys.

    The counts are those of a look at all rows.
    """

    missing: list[Key] = field(default_factory=list)
    extra: list[Key] = field(default_factory=list)
    differing: list[Key] = field(default_factory=list)
    changing: list[Key] = field(default_factory=list)
    stored: dict[Key, SeenRow] = field(default_factory=dict)
    source_rows: int = 0
    state_rows: int = 0

    @property
    def wrong(self) -> list[Key]:
        """Every key that differs."""
        return [*self.missing, *self.extra, *self.differing]


def settle(
    source: Rows, state: Rows, suspects: Sequence[Key], *, here: Callable[[], int], wait: Callable[[int], None]
) -> Settled:
    """Look at suspects again, at most six times. ``wait`` returns once the state has passed a place of the log.

    Each look reads the source, waits, reads the state, and reads the source once more. Both readings of the source may
    show a row as one and the same transaction wrote it. The row was the same in between then, and a state that shows
    another one is wrong. Digests alone prove nothing: a value may change and change back.
    """
    settled = Settled()
    for part in _parts(suspects, _IN_MEMORY):
        settled.changing += _settle(settled, source, state, part, here, wait)
    return settled


def _settle(
    settled: Settled, source: Rows, state: Rows, left: list[Key], here: Callable[[], int], wait: Callable[[int], None]
) -> list[Key]:
    """Settle what can be, and return the keys that changed each time."""
    seen: dict[Key, SeenRow] = {}
    for _ in range(ROUNDS):
        if not left:
            break
        before = _rows(source, left)
        wait(here())
        stored = _rows(state, left)
        after = _rows(source, left)
        looks = {key: _Look(before.get(key), stored.get(key), after.get(key), seen.get(key)) for key in left}
        left = [key for key in left if not _is_settled(settled, key, looks[key])]
        seen = {key: row for key in left if (row := stored.get(key))}
    return left


class _Look(NamedTuple):
    """What one round has seen of a key; ``seen`` is what the state had in the round before."""

    before: SeenRow | None
    stored: SeenRow | None
    after: SeenRow | None
    seen: SeenRow | None

    @property
    def shown(self) -> SeenRow | None:
        """The row that the state shows."""
        return None if self.stored is None or self.stored.deleted else self.stored

    @property
    def is_equal(self) -> bool:
        """Whether the state shows what the source had at either time."""
        return _digest(self.shown) in (_digest(self.before), _digest(self.after))

    @property
    def is_certain(self) -> bool:
        """Whether the source had one and the same row, or none, all the time.

        A row may have been inserted and deleted in between. If the source has no row, the state must show the same in a
        later round, after it has had the time to apply the deletion.
        """
        if self.before is None or self.after is None:
            same = self.before is self.after
            return same and self.seen is not None and self.seen == self.stored
        return self.before == self.after


def _is_settled(settled: Settled, key: Key, look: _Look) -> bool:
    if look.is_equal:
        return True
    if not look.is_certain:
        return False
    if look.stored is not None:
        settled.stored[key] = look.stored
    kind = settled.missing if look.shown is None else settled.extra if look.before is None else settled.differing
    kind.append(key)
    return True


def _digest(row: SeenRow | None) -> str | None:
    return None if row is None else row.digest


def _rows(side: Rows, keys: Sequence[Key]) -> dict[Key, SeenRow]:
    rows: dict[Key, SeenRow] = {}
    for part in _parts(keys, _AT_ONCE):
        rows |= side.rows_of(part)
    return rows


def _parts(keys: Sequence[Key], size: int) -> Iterator[list[Key]]:
    rest = iter(keys)
    while part := list(islice(rest, size)):
        yield part
