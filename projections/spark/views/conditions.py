"""Predicates compiled to native columns, for the records of one writer schema at a time.

Spark compares a double with a decimal as two doubles, and long decimals after rounding; NaN equals NaN there and is
above everything. A number is therefore never compared with a constant of another type: the constant is first rounded
down to a number of the field's own type, and the operator follows from whether the two are equal.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.columns import ColumnType
from projections.declaring.event_fields import FieldKind, check_against, kind_at, row_schema
from projections.declaring.predicates import (
    OPERATORS,
    Absence,
    Both,
    Comparison,
    Constant,
    Either,
    FieldComparison,
    Membership,
    Negated,
    Operator,
    Path,
    Predicate,
    Prefix,
    TypeTest,
    plain,
)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def condition(predicate: Predicate, schema: RegisteredSchema, record: Column) -> Column:
    """The boolean column, null for unknown, that a predicate means for records of a schema, decoded into a struct.

    Raises InvalidPredicate where the schema's own types do not allow it: an older one may differ from the declared.
    """
    check_against(predicate, schema)
    return _Compilation(schema, record).column(predicate)


def row_condition(predicate: Predicate, columns: Mapping[str, ColumnType]) -> Column:
    """The same for the rows of a table; it is true or false, since a row is there or not."""
    row = F.struct(*(F.col(name) for name in columns))
    return F.coalesce(condition(predicate, row_schema(columns), row), F.lit(False))


class _Compilation:
    def __init__(self, schema: RegisteredSchema, record: Column) -> None:
        self._schema = schema
        self._record = record

    def column(self, predicate: Predicate) -> Column:
        match predicate:
            case Both(left, right):
                return self.column(left) & self.column(right)
            case Either(left, right):
                return self.column(left) | self.column(right)
            case Negated(inner):
                return ~self.column(inner)
            case TypeTest(names):
                return F.lit(self._schema.name in names)
            case Absence(path):
                kind = self._kind(path)
                return F.lit(True) if kind is None else self._value(path, kind).isNull()
            case FieldComparison(left, symbol, right):
                return self._between(left, symbol, right)
            case _:
                return self._with_constants(predicate)

    def _with_constants(self, predicate: Predicate) -> Column:
        assert isinstance(predicate, Comparison | Membership | Prefix)  # noqa: S101 - the rest was matched above
        kind = self._kind(predicate.path)
        if kind is None:
            return _unknown()
        value = self._value(predicate.path, kind)
        match predicate:
            case Comparison(_, symbol, constant):
                return _compared(value, kind, symbol, constant)
            case Membership(_, constants):
                return _contained(value, kind, constants)
            case Prefix(_, text):
                return value.startswith(text)

    def _between(self, left: Path, symbol: Operator, right: Path) -> Column:
        kinds = self._kind(left), self._kind(right)
        if kinds[0] is None or kinds[1] is None:
            return _unknown()
        sides = self._value(left, kinds[0]), self._value(right, kinds[1])
        if kinds[0].number != kinds[1].number or kinds[0].number == "decimal":
            scale = max(kind.scale for kind in kinds if kind)
            digits = max(kind.whole_digits for kind in kinds if kind) + scale
            sides = sides[0].cast(f"decimal({digits},{scale})"), sides[1].cast(f"decimal({digits},{scale})")
        return _apply(symbol, *sides)

    def _kind(self, path: Path) -> FieldKind | None:
        return kind_at(self._schema.schema, path)

    def _value(self, path: Path, kind: FieldKind) -> Column:
        """The field's value in the one spelling its kind is compared in; a NaN is no value."""
        value = reduce(lambda record, name: record.getField(name), path, self._record)
        if kind.number == "float":
            wide = value.cast("double")
            return F.when(~F.isnan(wide), wide)
        if kind.number == "whole":
            return value.cast("bigint")
        return F.lower(value) if kind.family == "uuid" else value


def _unknown() -> Column:
    return F.lit(None).cast("boolean")


def _apply(symbol: Operator, left: Column, right: Column) -> Column:
    result: Column = OPERATORS[symbol](left, right)
    return result


def _compared(value: Column, kind: FieldKind, symbol: Operator, constant: Constant) -> Column:
    if kind.family != "number":
        return _apply(symbol, value, _literal(constant))
    exact = Fraction(plain(constant))
    floor = kind.floor(exact)
    if floor is None:
        return _settled(value, truth=symbol in {">", ">=", "!="})
    if Fraction(floor) == exact:
        return _apply(symbol, value, _number(floor, kind))
    if symbol in {"==", "!="}:
        return _settled(value, truth=symbol == "!=")
    return _apply(">" if symbol in {">", ">="} else "<=", value, _number(floor, kind))


def _contained(value: Column, kind: FieldKind, constants: tuple[Constant, ...]) -> Column:
    if kind.family != "number":
        return value.isin([_literal(constant) for constant in constants])
    floors = [(kind.floor(Fraction(plain(c))), Fraction(plain(c))) for c in constants]
    held = [floor for floor, exact in floors if floor is not None and Fraction(floor) == exact]
    if kind.number == "float" and 0 in held:
        held += [0.0, -0.0]  # long lists are looked up by hash, where the two zeros differ
    return value.isin([_number(floor, kind) for floor in held]) if held else _settled(value, truth=False)


def _settled(value: Column, *, truth: bool) -> Column:
    """The same answer for every value there is; unknown where there is none."""
    return F.when(value.isNotNull(), F.lit(truth))


def _number(value: object, kind: FieldKind) -> Column:
    """A literal of the field's own type: its text says it exactly."""
    if kind.number == "decimal":
        return F.lit(f"{value:f}").cast(f"decimal({kind.precision},{kind.scale})")
    return F.lit(str(value)).cast("bigint" if kind.number == "whole" else "double")


def _literal(constant: Constant) -> Column:
    """A literal as Spark holds it; dates and moments as numbers, which no time zone or calendar of the JVM touches."""
    value = plain(constant)
    match value:
        case dt.datetime():
            return F.timestamp_micros(F.lit((value - _EPOCH) // dt.timedelta(microseconds=1)))
        case dt.date():
            return F.date_from_unix_date(F.lit((value - _EPOCH.date()).days))
        case bool():
            return F.lit(value)
    return F.lit(str(value))
