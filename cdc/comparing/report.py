"""The result of a comparison, and its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cdc.comparing.rows import Key


@dataclass(frozen=True)
class ComparisonProgress:
    """How far the comparison of a table is.

    Attributes:
        table: The table.
        step: What is being done.
        rows: The rows compared so far.
        total: An estimate of the table's rows, 0 if unknown.

    Examples:
        >>> def show(progress: ComparisonProgress) -> None:
        ...     print(progress.table, progress.step, progress.rows, progress.total)
        >>> comparisons = compare_tables(engine, rows, states.tables, settings, on_progress=show)
    """

    table: str
    step: str
    rows: int
    total: int


OnProgress = Callable[[ComparisonProgress], None]


@dataclass(frozen=True)
class TableComparison:
    """A table of the source compared with a state. Keys are texts of the key columns, in the order of `key`.

    Attributes:
        state: The state, empty if no state is made from the table.
        missing: Keys that only the source has.
        extra: Keys that only the state has.
        differing: Keys whose rows have other values.
        changing: Keys that changed in the source each time they were compared.
        differing_columns: The columns that differ, for some keys.
        faults: Differences of the tables themselves.
        not_compared: Columns without a common form, with the reason.
        repaired: How many keys a repair made equal.
        unrepaired: Why a repair left the other keys.

    Examples:
        >>> (customers,) = compare_tables(engine, rows, states.tables, settings, tables=["public.customers"])
        >>> customers.equal, customers.missing, customers.differing
        (False, (('17',),), (('42',),))
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
