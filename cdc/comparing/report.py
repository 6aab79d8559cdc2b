"""The result of a comparison, and its progress.

The rows of one table in a PostgreSQL database, by ranges of their key: counted, digested, looked up.

Source and state are both read by this. No value of a row leaves its database: a digest of its canonical text does
(`canonical`), and its key. Each statement is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc.comparing.canonical import ColumnForm, state_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

# The canonical texts of a key's columns, in their order.
Key = tuple[str, ...]


def ordered(key: Key, kinds: Sequence[str]) -> tuple[Any, ...]:
    """A key as Python orders it, by the kinds of its columns: numbers by value, everything else by its text."""
    numbers = [kind in ("integer", "decimal") for kind in kinds]
    return tuple(Decimal(part) if number else part for part, number in zip(key, numbers, strict=True))


class KeyRange(NamedTuple):
    """The keys after ``lower`` up to ``upper``; None for no bound."""

    lower: Key | None = None
    upper: Key | None = None


class Digest(NamedTuple):
    """How many rows a range has, and one digest of all of them in the order of their keys."""

    rows: int
    value: str


class SeenRow(NamedTuple):
    """The digest of one row; its version in the source, or its position in a state (docs/decisions/0008).

    ``version`` is the transaction that wrote the row, ``position`` epoch, place and offset of its newest change.
    """

    digest: str
    version: str | None = None
    position: tuple[int, int, int] | None = None
    deleted: bool = False


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key as SQL: its canonical text, what rows are ordered by, and how a text becomes its value.

    ``sort_expression`` is what a lookup compares: the column itself, which has an index, where equal texts are equal
    values. ``is_indexed`` says whether an index of the column is in that order.
    """

    text: str
    order: str
    value: str
    sort_expression: str
    sort_value: str
    is_indexed: bool = True


@dataclass(frozen=True)
class Rows:
    """One table behind a connection in autocommit mode; ``columns`` maps what is compared to its canonical text."""

    connection: Connection
    relation: str
    key: tuple[KeyColumn, ...]
    columns: Mapping[str, str]
    is_state: bool = False
    estimate: int = field(default=0, compare=False)

    @property
    def is_indexed(self) -> bool:
        """Whether a range of keys is found by an index."""
        return all(column.is_indexed for column in self.key)

    def last_of(self, lower: Key | None, rows: int) -> Key | None:
        """Return the key of the so manieth row after a key; None where there are fewer."""
        where, values = self._range(KeyRange(lower))
        query = f"SELECT {self._texts} FROM {self.relation} WHERE {where} ORDER BY {self._orders} OFFSET %s LIMIT 1"  # noqa: S608
        row = self.connection.exec_driver_sql(query, (*values, rows - 1)).one_or_none()
        return None if row is None else tuple(row)

    def digest(self, keys: KeyRange) -> Digest:
        """Count and digest the rows of a range."""
        where, values = self._range(keys)
        orders = [f"{column.order} AS o{n}" for n, column in enumerate(self.key)]
        names = ", ".join(f"o{n}" for n in range(len(self.key)))
        rows = f"SELECT {', '.join(orders)}, {self._digest} AS d FROM {self.relation} WHERE {where}"  # noqa: S608
        query = (
            f"SELECT count(*), encode(sha256(coalesce(string_agg(d, ''::bytea ORDER BY {names}), ''::bytea)), 'hex')"  # noqa: S608
            f" FROM ({rows} AND %s) AS r"
        )
        return Digest(*self.connection.exec_driver_sql(query, (*values, True)).one())

    def rows(self, keys: KeyRange) -> dict[Key, SeenRow]:
        """Return each row of a range: its digest, and in a state its position; deleted ones are left out."""
        where, values = self._range(keys)
        query = f"SELECT {self._row} FROM {self.relation} WHERE {where} AND %s"  # noqa: S608
        return self._read(self.connection.exec_driver_sql(query, (*values, True)))

    def rows_of(self, keys: Sequence[Key]) -> dict[Key, SeenRow]:
        """Return the rows of some keys, those that a state has marked as deleted too."""
        return self._read(self._looked_up(self._row, keys))

    def columns_of(self, keys: Sequence[Key]) -> dict[Key, tuple[str | None, ...]]:
        """Return a digest of each column of the rows of some keys, None for a null."""
        digests = (f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')" for text in self.columns.values())
        width = len(self.key)
        rows = self._looked_up(", ".join([self._texts, *digests]), keys)
        return {tuple(row[:width]): tuple(row[width:]) for row in rows}

    def _looked_up(self, selected: str, keys: Sequence[Key]) -> Any:
        arrays = ", ".join("CAST(%s AS text[])" for _ in self.key)
        names = ", ".join(f"k{n}" for n in range(len(self.key)))
        same = " AND ".join(
            f"{column.sort_expression} = {column.sort_value.format(f'w.k{n}')}" for n, column in enumerate(self.key)
        )
        query = f"SELECT {selected} FROM {self.relation} JOIN unnest({arrays}) AS w({names}) ON {same}"  # noqa: S608
        return self.connection.exec_driver_sql(query, tuple(list(part) for part in zip(*keys, strict=True)))

    def _read(self, rows: Any) -> dict[Key, SeenRow]:
        width = len(self.key)
        if not self.is_state:
            return {tuple(row[:width]): SeenRow(row[width], row[-1]) for row in rows}
        return {tuple(row[:width]): SeenRow(row[width], None, tuple(row[-4:-1]), row[-1]) for row in rows}

    @property
    def _texts(self) -> str:
        return ", ".join(column.text for column in self.key)

    @property
    def _orders(self) -> str:
        return ", ".join(column.order for column in self.key)

    @property
    def _digest(self) -> str:
        """The digest of a row: its texts are quoted, so that no two rows run into one text."""
        texts = " || ',' || ".join(f"quote_nullable({text})" for text in self.columns.values())
        return f"sha256(convert_to({texts}, 'UTF8'))"

    @property
    def _row(self) -> str:
        place = "t._epoch, t._pos, t._offset, t._deleted" if self.is_state else "t.xmin::text"
        return f"{self._texts}, encode({self._digest}, 'hex'), {place}"

    def _range(self, keys: KeyRange) -> tuple[str, list[str]]:
        parts, values = ["NOT t._deleted"] if self.is_state else [], list[str]()
        orders, places = self._orders, ", ".join(column.value.format("%s") for column in self.key)
        for sign, bound in ((">", keys.lower), ("<=", keys.upper)):
            if bound is not None:
                parts.append(f"({orders}) {sign} ({places})")
                values += bound
        return " AND ".join(parts) or "true", values


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
class CapturedModel:
    """A table as a projection group declares it over a changelog topic; ``name`` is that of group and table.

    ``forms`` say what the values of each column stand for, ``encoding`` how the topic's records are written.
    ``fields`` are the source's names of columns that the model names otherwise.
    """

    name: str
    topic: str
    key: tuple[str, ...]
    forms: Mapping[str, ColumnForm]
    encoding: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class StateTable(CapturedModel):
    """The current rows of a captured table, in PostgreSQL or SQLite, with the columns of their positions.

    These are `_epoch`, `_pos` and `_offset`, and `_deleted` marks a deleted row. ``connect`` opens a connection of
    its own in autocommit mode, and ``writing`` a transaction of a file. ``progress`` gives the next offset of each
    partition of the topic, and raises where these rows serve no more. ``decode_key`` reads the key of a record of the
    topic, which is at a place.
    """

    types: Mapping[str, str]
    relation: str
    connect: Callable[[], AbstractContextManager[Connection]]
    writing: Callable[[], AbstractContextManager[Connection]]
    progress: Callable[[], Mapping[int, int]]
    decode_key: Callable[[bytes, str], Key]
    place: str

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
