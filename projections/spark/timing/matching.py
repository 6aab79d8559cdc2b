"""Patterns in views: the matches that the rows of a partition have.

    @view(by="account", key="payment_id")
    def frauds(payments):
        return match_pattern(payments, pattern, by="account", time="paid_at", key="payment_id",
                             measures={"amount": large.last("amount")})

Spark decides all that looks at one row alone, numbers the rows of each partition, and leaves out those that no match
can have. A Python function gets the others in their order, and runs an automaton over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, LongType, StringType, StructField, StructType

from projections.declaring.columns import ColumnType
from projections.declaring.event_fields import row_schema
from projections.declaring.predicates import Both, Either, Predicate
from projections.declaring.timing.automaton import Automaton
from projections.declaring.timing.checking import check_measure, check_pattern, columns_computed, columns_of, own_name
from projections.declaring.timing.operands import PREVIOUS, Taken, is_plain
from projections.declaring.timing.patterns import Pattern, Step, as_pattern
from projections.declaring.views import Columns, as_columns
from projections.errors import InvalidDefinition
from projections.planning.nearness import MICROS, TIME
from projections.planning.plans import ANY_TIME, ENTRY, LOOKS, NUMBERED, PARTITION, ROW_KEY
from projections.spark.nesting import column_type
from projections.spark.python_workers import settled
from projections.spark.timing.matches import (
    DECIDED,
    MOMENT,
    NUMBER,
    LabelOfEach,
    Layout,
    Matching,
    Measured,
    OfEach,
    OfFirst,
    Output,
)
from projections.spark.timing.row_columns import in_order, key_of, require_columns, require_time, saying
from projections.spark.views.conditions import condition

_MOST_DIGITS: Final = 38
_AVERAGED: Final = 4  # digits that an average has more, as Spark's has


def match_pattern(
    rows: DataFrame,
    pattern: Pattern | Step,
    *,
    by: Columns,
    time: str,
    key: Columns = (),
    order: Columns = (),
    measures: Mapping[str, Taken] | None = None,
    per: Literal["match", "row"] = "match",
    labelled: str = "label",
) -> DataFrame:
    """Return the matches of a pattern in each partition of ``by``, for a view with the same ``by``.

    A match is identified by its first row. A change leaves other matches unchanged if they begin and end as before.

    Args:
        rows: The rows of the partition.
        pattern: The pattern.
        by: The columns of the partition.
        time: The column that orders rows. A row without a time is in no match.
        key: The columns that distinguish rows of a partition, by default the table's key.
        order: Columns that order rows of one time.
        measures: Columns of a match.
        per: ``match`` returns a row for each match: ``by``, the key of its first row and the measures. ``row`` returns
            each row of a match, with the match's key as ``match_…``, its label and the measures.
        labelled: The column of the label.

    Raises:
        InvalidDefinition: The pattern cannot be matched, or a column is missing. Raised when the view is
            planned, as InvalidPredicate is.

    Examples:
        >>> card_test = small.times(3).followed_by(large).within("10 minutes")
        >>> measures = {"amount": large.last("amount"), "tried": small.total("amount")}
        >>> match_pattern(payments, card_test, by="customer_id", time="paid_at", measures=measures)
    """
    own = as_columns(key) or key_of(rows)
    asked = _Asked(
        saying(rows, **{TIME: time}), as_pattern(pattern), as_columns(by), time, as_columns(order), own, measures or {}
    )
    layout = asked.layout(per, labelled)

    schema = StructType(
        [StructField(name, asked.type_of(one), True, asked.marks(name, one)) for name, one in layout.outputs.items()]
    )
    found = asked.decided(layout).mapInArrow(settled(Matching(asked.pattern, layout)), schema)
    return found if asked.pattern.span is None else saying(found, **{MICROS: asked.pattern.span})


@dataclass(frozen=True)
class _Asked:
    """What match_pattern was given, checked."""

    rows: DataFrame
    pattern: Pattern
    by: tuple[str, ...]
    time: str
    order: tuple[str, ...]
    key: tuple[str, ...]
    measures: Mapping[str, Taken]

    def __post_init__(self) -> None:
        if not self.by or not self.key:
            raise InvalidDefinition(
                "match_pattern without columns of partitions, or of a key",
                remedy="name both: by='account', and what tells the rows of an account apart, key='payment_id'",
            )
        self._require_no_names_of_ours()
        named = (*self.by, self.time, *self.order, *self.key)
        require_columns(self.rows, named)
        require_columns(self.rows, map(own_name, columns_of(self.pattern)), place=f"pattern {self.pattern.step}")
        require_time(self.rows, self.time)
        for name, measure in self.measures.items():
            self._require_measure(name, measure)
        check_pattern(self.pattern, self._typed(columns_of(self.pattern)))

    @property
    def _kinds(self) -> dict[str, DataType]:
        return {field.name: field.dataType for field in self.rows.schema.fields}

    def _require_no_names_of_ours(self) -> None:
        ours = [name for name in self.rows.columns if name.startswith((NUMBER, MOMENT, DECIDED, PREVIOUS))]
        if ours:
            raise InvalidDefinition(
                f"the rows have a column {ours[0]!r}", remedy="name it without a leading underscore"
            )

    def _require_measure(self, name: str, measure: Taken) -> None:
        if not isinstance(measure, Taken):
            raise InvalidDefinition(
                f"measure {name!r} is {measure}", remedy="write label.last('column'), or another function of rows_of(…)"
            )
        self.pattern.require_labels(measure.labels, f"measure {name!r}")
        columns = [] if measure.column is None else [measure.column]
        require_columns(self.rows, columns, place=f"measure {name!r}")
        if measure.function not in ("first", "last"):
            check_measure(measure, self._typed(columns))

    def _typed(self, columns: Iterable[str]) -> dict[str, ColumnType]:
        return {name: column_type(self._kinds[own_name(name)], f"pattern {self.pattern.step}") for name in columns}

    def layout(self, per: str, labelled: str) -> Layout:
        """The columns of the result, and what workers see of the rows."""
        if per not in ("match", "row"):
            raise InvalidDefinition(f"match_pattern per {per!r}", remedy="write per='match' or per='row'")
        own: list[tuple[str, Output]] = [(name, OfFirst(name)) for name in self.by]
        first = "" if per == "match" else "match_"
        own += [(first + name, OfFirst(name)) for name in self.key if name not in self.by]
        if per == "row":
            own += [(name, OfEach(name)) for name in self.rows.columns if name not in self.by]
            own += [(labelled, LabelOfEach())]
        own += [(name, Measured(one, self._digits(one))) for name, one in self.measures.items()]
        twice = [name for n, (name, _) in enumerate(own) if name in [other for other, _ in own[:n]]]
        if twice:
            raise InvalidDefinition(
                f"match_pattern returns column {twice[0]!r} twice",
                remedy="name the measure otherwise, or the column of labels: labelled='…'",
            )
        return Layout(self.by, tuple(columns_computed(self.pattern)), dict(own))

    def _digits(self, measure: Taken) -> tuple[int, int] | None:
        """The digits of a decimal that is computed."""
        if measure.function not in ("total", "average") or measure.column is None:
            return None
        kind = self._typed([measure.column])[measure.column]
        if kind.kind != "decimal":
            return None if measure.function == "total" else (23, _AVERAGED)
        if measure.function == "total":
            return min(_MOST_DIGITS, kind.precision + 10), kind.scale
        return min(_MOST_DIGITS, kind.precision + _AVERAGED), min(_MOST_DIGITS, kind.scale + _AVERAGED)

    def type_of(self, output: Output) -> DataType:
        """The type of a column of the result."""
        match output:
            case OfFirst(column) | OfEach(column):
                return self._kinds[column]
            case LabelOfEach():
                return StringType()
            case Measured(taken, digits):
                if digits is not None:
                    return DecimalType(*digits)
                if taken.function in ("count", "total") or taken.column is None:
                    return LongType()
                return self._kinds[taken.column]

    def marks(self, name: str, output: Output) -> dict[str, Any]:
        """What a plan's reader is to know of a column of the result."""
        if name in self.by:
            return {PARTITION: name}
        if not isinstance(output, OfFirst | OfEach) or output.column not in self.key:
            return {}
        return {ROW_KEY: True} | ({ENTRY: True} if ENTRY in self.rows.schema[output.column].metadata else {})

    def decided(self, layout: Layout) -> DataFrame:
        """The rows that a match may have, in their order, with what Spark knows of each."""
        before = Automaton(self.pattern).before
        columns = columns_of(self.pattern)
        types = self._typed(columns)
        schema, row = row_schema(types), F.struct(*map(F.col, columns))
        truths = {f"{DECIDED}{n}": condition(part, schema, row) for n, part in enumerate(before)}
        known = self._numbered(columns).withColumns({MOMENT: F.unix_micros(F.col(self.time)), **truths})
        needed = [*self.by, *self.key, NUMBER, MOMENT, *truths, *layout.seen, *_sources(layout)]
        places = {id(part): f"{DECIDED}{n}" for n, part in enumerate(before)}
        return self._possible(known, places).select(*dict.fromkeys(needed))

    def _numbered(self, columns: Iterable[str]) -> DataFrame:
        """The rows with their numbers, and with what conditions look at of the row before.

        The view's plan shows that no two rows have equal places in the order. Otherwise it is refused.
        """
        window = Window.partitionBy(*self.by).orderBy(self.time, *self.order, *in_order(self.rows, self.key))
        before = {name: F.lag(own_name(name)).over(window) for name in columns if name.startswith(PREVIOUS)}
        timed = self.rows.where(F.col(self.time).isNotNull())
        number = F.row_number().over(window)
        marks = {NUMBERED: True, LOOKS: ANY_TIME if (span := self.pattern.span) is None else span}
        return timed.withColumns({NUMBER: number, **before}).withMetadata(NUMBER, marks)

    def _possible(self, rows: DataFrame, places: Mapping[int, str]) -> DataFrame:
        """The rows of which a condition may be true, in partitions that have as many of each label as a match needs."""
        conditions = {name: one.condition for name, one in self.pattern.labels.items()}
        if None not in conditions.values():
            rows = rows.where(reduce(or_, (_bound(one, places) for one in self.pattern.conditions)))
        needed = {
            f"{DECIDED}{name}": (one, count)
            for name, count in self.pattern.step.shape.fewest.items()
            if count and (one := conditions[name]) is not None
        }
        whole = Window.partitionBy(*self.by)
        counts = {name: F.count_if(_bound(one, places)).over(whole) for name, (one, _) in needed.items()}
        enough = [F.col(name) >= count for name, (_, count) in needed.items()]
        return rows.withColumns(counts).where(reduce(and_, enough, F.lit(True)))


def _sources(layout: Layout) -> list[str]:
    """The columns that those of the result are made of."""
    columns = [one.taken.column if isinstance(one, Measured) else getattr(one, "column", None)
               for one in layout.outputs.values()]  # fmt: skip
    return [name for name in columns if name is not None]


def _bound(condition: Predicate, places: Mapping[int, str]) -> Column:
    """What is true wherever a condition may be."""
    if is_plain(condition):
        return F.coalesce(F.col(places[id(condition)]), F.lit(False))
    match condition:
        case Both(left, right):
            return _bound(left, places) & _bound(right, places)
        case Either(left, right):
            return _bound(left, places) | _bound(right, places)
    return F.lit(True)
