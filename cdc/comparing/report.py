"""What a comparison found, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cdc.comparing.rows import Key


@dataclass(frozen=True)
class ComparisonProgress:
    """How far the comparison of a table has come. ``total`` is an estimate of its rows, 0 where none is known."""

    table: str
    step: str
    rows: int
    total: int


OnProgress = Callable[[ComparisonProgress], None]


@dataclass(frozen=True)
class TableComparison:
    """The rows of a table in its source, held against those of a state.

    Keys are the canonical texts of the key's columns, in the order of ``key``. ``missing`` keys are in the source
    alone, ``extra`` ones in the state alone, those of ``differing`` have other values. ``changing`` ones changed in
    the source each time they were looked at. ``differing_columns`` names the columns of some differing keys.
    A table from which no state is made is not compared, and its ``state`` is empty.
    ``faults`` are differences of the tables themselves, and ``not_compared`` are columns without a common form, with
    the reason. ``repaired`` counts the keys that a repair made equal. ``unrepaired`` says why it left the others.
    """

    table: str
    state: str
    key: tuple[str, ...]
    source_rows: int = 0
    state_rows: int = 0
    chunks: int = 0
    missing: tuple[Key, ...] = ()
    extra: tuple[Key, ...] = ()
    differing: tuple[Key, ...] = ()
    changing: tuple[Key, ...] = ()
    differing_columns: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_compared: Mapping[str, str] = field(default_factory=dict)
    repaired: int = 0
    unrepaired: str | None = None

    @property
    def is_compared(self) -> bool:
        """Whether any state is made from the table."""
        return bool(self.state)

    @property
    def equal(self) -> bool:
        """Whether every row that can be compared is the same in both, and the tables have the same columns."""
        return not (self.missing or self.extra or self.differing or self.changing or self.faults)
