"""Patterns matched in Python workers: rows come sorted by partition and order, and matches leave as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from projections.declaring.timing.automaton import Automaton, Match
from projections.declaring.timing.deciding import Partition, begun, moved, value_of
from projections.declaring.timing.operands import Taken
from projections.declaring.timing.patterns import Pattern
from projections.errors import UnsupportedValue

NUMBER: Final = "_number"  # of a row in its partition
MOMENT: Final = "_moment"  # its time in microseconds
DECIDED: Final = "_decided_"  # whether the condition of a number holds

_LONG: Final = 2**63


@dataclass(frozen=True)
class OfFirst:
    """A column of the match's first row."""

    column: str


@dataclass(frozen=True)
class OfEach:
    """A column of each row of the match."""

    column: str


@dataclass(frozen=True)
class LabelOfEach:
    """The label of each row of the match."""


@dataclass(frozen=True)
class Measured:
    """A measure of the whole match; ``digits`` are precision and scale of a decimal that it is rounded to."""

    taken: Taken
    digits: tuple[int, int] | None = None


Output = OfFirst | OfEach | LabelOfEach | Measured


@dataclass(frozen=True)
class Layout:
    """What workers get: columns of partitions, those that conditions look at, and those of the result by name."""

    by: tuple[str, ...]
    seen: tuple[str, ...]
    outputs: dict[str, Output]

    @property
    def of_each(self) -> bool:
        """Whether each row of a match is a row of the result."""
        return any(isinstance(one, LabelOfEach) for one in self.outputs.values())


class Matching:
    """The function of a task's batches."""

    def __init__(self, pattern: Pattern, layout: Layout) -> None:
        self._pattern, self._layout = pattern, layout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The matches of whole partitions; the last one of a batch may go on in the next."""
        automaton, last = Automaton(self._pattern), None
        pending: list[pa.RecordBatch] = []
        for batch in filter(len, batches):
            partitions = _partitions(batch, self._layout.by)
            begins = [at for at in range(len(batch)) if not _same(partitions[at], partitions[at - 1] if at else last)]
            if begins:
                yield from self._matched(automaton, [*pending, batch.slice(0, begins[-1])])
            pending = [batch.slice(begins[-1])] if begins else [*pending, batch]
            last = partitions[-1]
        yield from self._matched(automaton, pending)

    def _matched(self, automaton: Automaton, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(map(len, batches)):
            rows = pa.Table.from_batches(batches).combine_chunks()
            yield from _Result(self._layout, rows, list(_matches(automaton, rows, self._layout))).batches()


def _matches(automaton: Automaton, rows: pa.Table, layout: Layout) -> Iterator[Match]:
    """The matches of all partitions, with the places that their rows have among all."""
    numbers, times = (rows.column(name).to_pylist() for name in (NUMBER, MOMENT))
    decided = [rows.column(f"{DECIDED}{n}").to_pylist() for n in range(len(automaton.before))]
    values = {name: _plain(rows.column(name)) for name in layout.seen}
    partitions = _partitions(rows, layout.by)
    begins = [at for at in range(len(partitions)) if not at or not _same(partitions[at], partitions[at - 1])]
    for begin, end in zip(begins, [*begins[1:], len(partitions)], strict=True):
        _require_order(numbers[begin:end])
        part = Partition(
            numbers[begin:end],
            times[begin:end],
            [truths[begin:end] for truths in decided],
            {name: column[begin:end] for name, column in values.items()},
        )
        for match in automaton.matches(part):
            yield Match(tuple(begin + row for row in match.rows), match.labels)


def _require_order(numbers: Sequence[int]) -> None:
    """The window that numbered the rows left them in its order; were it otherwise, matches would be wrong unseen."""
    if any(one >= other for one, other in pairwise(numbers)):
        raise RuntimeError("the rows of a partition do not follow each other in their order")


@dataclass(frozen=True)
class _Result:
    """The columns of the result: of the rows that matches have, taken as they are, and what is computed of them."""

    layout: Layout
    rows: pa.Table
    matches: Sequence[Match]

    def batches(self) -> list[pa.RecordBatch]:
        """The result."""
        columns = {name: self._column(output) for name, output in self.layout.outputs.items()}
        return pa.table(columns).to_batches() if self.matches else []

    def _column(self, output: Output) -> pa.Array:
        match output:
            case OfFirst(column):
                return self._taken(column, self._spread([match.rows[0] for match in self.matches]))
            case OfEach(column):
                return self._taken(column, [row for match in self.matches for row in match.rows])
            case LabelOfEach():
                return pa.array([name for match in self.matches for name in match.labels], pa.string())
            case Measured(taken):
                return self._measured(output, taken)

    def _measured(self, output: Measured, taken: Taken) -> pa.Array:
        rows = [_rows_of(taken.labels, match) for match in self.matches]
        if taken.function in ("first", "last"):
            place = 0 if taken.function == "first" else -1
            return self._taken(taken.column, self._spread([some[place] if some else None for some in rows]))
        values = [True] * len(self.rows) if taken.column is None else _plain(self.rows.column(taken.column))
        results = [_computed(output, [values[row] for row in some]) for some in rows]
        return pa.array(self._spread(results), self._type_of(output))

    def _type_of(self, output: Measured) -> pa.DataType:
        if output.digits is not None:
            return pa.decimal128(*output.digits)
        if output.taken.function in ("count", "total"):
            return pa.int64()
        return self.rows.schema.field(output.taken.column).type

    def _taken(self, column: str | None, rows: Sequence[int | None]) -> pa.Array:
        return self.rows.column(column).take(pa.array(rows, pa.int64()))

    def _spread(self, values: Sequence[Any]) -> list[Any]:
        """What a match has, for each row of the result that is of it."""
        if not self.layout.of_each:
            return list(values)
        return [value for value, match in zip(values, self.matches, strict=True) for _ in match.rows]


def _rows_of(labels: Sequence[str], match: Match) -> list[int]:
    return [row for row, name in zip(match.rows, match.labels, strict=True) if not labels or name in labels]


def _computed(output: Measured, values: Sequence[Any]) -> Any:
    function = output.taken.function
    result = value_of(function, reduce(lambda state, value: moved(function, state, value), values, begun(function)))
    if result is None or function in ("least", "greatest"):
        return result
    if output.digits is None:
        return _whole(output.taken, result)
    return _rounded(output.taken, result, *output.digits)


def _whole(taken: Taken, number: int) -> int:
    if -_LONG <= number < _LONG:
        return number
    raise _too_large(taken, "a number of 64 bits")


def _rounded(taken: Taken, number: Fraction | Decimal | int, precision: int, scale: int) -> Decimal:
    """The decimal of some digits that is nearest, away from zero where two are."""
    exact = Fraction(number) * 10**scale
    units = int(abs(exact) + Fraction(1, 2)) * (-1 if exact < 0 else 1)
    if abs(units) >= 10**precision:
        raise _too_large(taken, f"decimal({precision},{scale})")
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _too_large(taken: Taken, kind: str) -> UnsupportedValue:
    return UnsupportedValue(
        f"{taken} of a match is larger than {kind} holds", remedy="measure smaller rows, or fewer: a shorter within"
    )


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that compare as they are: of times in one zone, Python compares what its clocks show."""
    has_zone = pa.types.is_timestamp(column.type) and column.type.tz is not None
    values: list[Any] = (column.cast(pa.timestamp("us", "UTC")) if has_zone else column).to_pylist()
    return values


def _partitions(rows: pa.Table | pa.RecordBatch, by: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in by), strict=True))


def _same(left: tuple[Any, ...], right: tuple[Any, ...] | None) -> bool:
    """Whether two rows are of one partition, as Spark groups them: a NaN is one value."""
    if left == right or right is None:
        return right is not None
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))
