"""The result of a comparison, and its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.comparing.canonical import ColumnForm, state_text
from cdc.comparing.rows import Key, KeyColumn, Rows

if TYPE_CHECKING:
    from sqlalchemy import Connection


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


@dataclass(frozen=True)
class StateTable:
    """The current rows of a captured table, in PostgreSQL or SQLite, with the columns of their positions.

    These are `_epoch`, `_pos` and `_offset`, and `_deleted` marks a deleted row. ``connect`` opens a connection of
    its own in autocommit mode, and ``writing`` a transaction of a file. ``progress`` gives the next offset of each
    partition of the topic, and raises where these rows serve no more. ``decode_key`` reads the key of a record of the
    topic, which is at a place; ``encoding`` is how the topic's records are written. ``fields`` are the source's names
    of columns that the state names otherwise.
    """

    name: str
    topic: str
    key: tuple[str, ...]
    forms: Mapping[str, ColumnForm]
    types: Mapping[str, str]
    relation: str
    encoding: str
    connect: Callable[[], AbstractContextManager[Connection]]
    writing: Callable[[], AbstractContextManager[Connection]]
    progress: Callable[[], Mapping[int, int]]
    decode_key: Callable[[bytes, str], Key]
    place: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_embedded(self) -> bool:
        """Whether state and source are in one SQLite file."""
        return not self.types

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether everything before some offsets is in the rows."""
        progress = self.progress()
        return all(progress.get(partition, 0) >= end for partition, end in ends.items())

    def rows(self, connection: Connection, columns: Mapping[str, str], *, orders_by_bytes: bool) -> Rows:
        """The rows, with the columns that both sides have; ``columns`` are their canonical texts in the source."""
        texts = {name: state_text(self.forms[name], f't."{name}"') or "NULL" for name in columns}
        key = tuple(self._key_column(name, orders_by_bytes=orders_by_bytes) for name in self.key)
        return Rows(connection, f"{self.relation} AS t", key, texts, is_state=True)

    def _key_column(self, name: str, *, orders_by_bytes: bool) -> KeyColumn:
        column, form = f't."{name}"', self.forms[name]
        return key_column(
            form,
            column,
            text=state_text(form, column) or column,
            cast=self.types[name],
            orders_by_bytes=orders_by_bytes or form.kind == "uuid",
        )


def key_column(form: ColumnForm, column: str, *, text: str, cast: str, orders_by_bytes: bool) -> KeyColumn:
    """A column of a key on one side; both sides have one order, which is that of bytes for texts.

    Infinite times are other values in the two: what has a time in its key is found by its text, without an index.
    """
    plain = f"CAST({{}} AS {cast})"
    is_text, is_time = form.kind == "text", form.kind in ("moment", "local moment", "date")
    order, value = (column, plain) if orders_by_bytes or not is_text else (f'({text}) COLLATE "C"', "CAST({} AS text)")
    sort_expression, sort_value = (f"({text})", "{}") if is_time else (column, plain)
    return KeyColumn(text, order, value, sort_expression, sort_value, is_indexed=order == column)


# What a key is compared by in ranges: types with one order in both databases.
RANGED = frozenset({"integer", "text", "uuid", "decimal", "boolean", "bytes", "date", "moment", "local moment"})
