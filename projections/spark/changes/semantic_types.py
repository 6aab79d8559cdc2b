"""Values of change events as Spark columns: what `cdc.changes.column_readers` does in Python, inside the JVM.

Every value comes as text: a JSON string's content, the JSON of anything else, base64 of bytes. With what the record's
schema says of the field, a number of days, of units since 1970 or a decimal's bytes becomes the type it stands for.
Types that Spark lacks are text of one form, whatever the encoding: `03:04:05.678901`, `P0Y0M0DT0H0M93784.500000S`, JSON
of an array whose items say by themselves what they are. Null is a value that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc.changes.column_readers import INNER_ARRAY
from cdc.changes.semantic_types import (
    BEGINLESS,
    BEGINLESS_DAYS,
    BEGINLESS_TEXTS,
    DAYS,
    DECIMAL,
    DURATION,
    ENDLESS,
    ENDLESS_DAYS,
    ENDLESS_TEXTS,
    TIMES,
    TIMESTAMPS,
    VARIABLE_SCALE,
    Form,
)
from projections.declaring.columns import ColumnType
from projections.spark.changes.bit_fields import base64_of, bits, is_unavailable, unscaled
from projections.spark.nesting import JSON_NULL, canonical

_MICROS: Final = 1_000_000
_DECIMAL_DIGITS: Final = 38
_DAY_MICROS: Final = 86_400 * _MICROS
_FIRST, _LAST = "0001-01-01", "9999-12-31"
_FIRST_MOMENT, _LAST_MOMENT = f"{_FIRST} 00:00:00", f"{_LAST} 23:59:59.999999"
_TO_THE_MICROSECOND = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
_TIME = r"^(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?$"
_INTERVAL = r"^P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?\d+(?:\.\d+)?)S$"
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_BASE64 = r"^[A-Za-z0-9+/]*={0,2}$"  # no group is repeated: Java's matcher would go one frame deeper for each turn
# What a schema may say of a value that then does not say it itself; which of them a kind of column takes.
_LED: Final = frozenset({*DAYS, *TIMES, *TIMESTAMPS, DECIMAL, VARIABLE_SCALE, DURATION})
_TAKEN: Final = {
    "date": DAYS,
    "timestamp": frozenset(TIMESTAMPS),
    "decimal": frozenset({DECIMAL, VARIABLE_SCALE}),
    "time": frozenset(TIMES),
    "interval": frozenset({DURATION}),
}


@dataclass(frozen=True)
class FieldForm:
    """What the schema says of a field, as columns: type, semantic type, a decimal's scale; of an array's items too."""

    type: Column
    name: Column
    scale: Column
    items: FieldForm | None = None

    @classmethod
    def fixed(cls, form: Form) -> FieldForm:
        """A form that is the same in all records."""
        items = None if form.items is None else cls.fixed(form.items)
        kind, name, scale = (F.lit(said).cast("string") for said in (form.type, form.name, form.scale))
        return cls(kind, name, scale, items)


def is_value(text: Column, column: ColumnType) -> Column:
    """Whether a text that is there is one of a value: JSON has a null of its own."""
    return F.trim(text) != JSON_NULL if column.shape and column.items is None else text.isNotNull()


def typed(text: Column, column: ColumnType, form: FieldForm | None, mark: Column | None = None) -> Column:
    """The text as the column's type; null where it does not fit.

    ``mark`` is what stands for an unavailable value, which is null too. Values of keys and items of arrays never are.
    """
    if mark is not None and column.varies_in_length:
        text = F.when(~is_unavailable(text, column, mark), text)
    value = _value(text, column, form)
    return value if form is None else F.when(_fits(column, form), value)


def of_text(text: Column, column: ColumnType) -> Column:
    """A text that no source sent, and that is never unavailable, as the column's type; null where it does not fit."""
    return _value(text, replace(column, dimensions=1), None)


def _fits(column: ColumnType, form: FieldForm) -> Column:
    """Whether the column is of a type that the schema's can be: a number of days is a date, and no number."""
    name = F.coalesce(form.name, F.lit(""))
    taken = _TAKEN.get(column.meaning or column.kind, frozenset())
    fits = ~name.isin(*sorted(_LED - taken))
    if column.kind == "binary":
        return fits & (form.type == "bytes")  # as text it could be base64 or hexadecimal
    if column.kind == "string" and column.bits is None and column.items is None:
        return fits & (form.type != "bytes")
    return fits


def _value(text: Column, column: ColumnType, form: FieldForm | None) -> Column:
    if column.items is not None:
        return _array(text, column.items, form and form.items, is_flat=column.dimensions == 1)
    if column.shape:
        return canonical(text, column.shape)
    if column.bits is not None:
        return bits(text, column.bits)
    match column.meaning or column.kind:
        case "date":
            return _date(text, form)
        case "timestamp" | "zoned":
            return _timestamp(text, form, zoned=column.meaning == "zoned")
        case "decimal":
            return _exact(_decimal(text, form), column)
        case "time" | "zoned time":
            return _time(text, form, zone="Z" if column.meaning == "zoned time" else "")
        case "interval":
            return _interval(text, form)
        case "uuid":
            return F.when(text.rlike(_UUID), text)
        case "binary":
            return F.when(text.rlike(_BASE64) & (F.length(text) % 4 == 0), F.unbase64(text))
        case "boolean":
            return F.when(text.isin("true", "1"), F.lit(True)).when(text.isin("false", "0"), F.lit(False))
    return text if column.kind == "string" else text.try_cast(column.ddl)


def _date(text: Column, form: FieldForm | None) -> Column:
    last, first = F.lit(_LAST).cast("date"), F.lit(_FIRST).cast("date")
    # 2013-01-31, or 2013-01-31Z as isostring has it; years of more digits are longer.
    written = F.length(text).between(10, 11) & (F.substring(text, 1, 4) != "0000")
    plain = F.when(written, F.substring(text, 1, 10).try_cast("date"))
    endless = F.when(text.isin(*ENDLESS_TEXTS), last).when(text.isin(*BEGINLESS_TEXTS), first)
    said = F.coalesce(plain, endless)
    if form is None:
        return said
    days = text.try_cast("int")
    day = F.date_from_unix_date(days)
    counted = (
        F.when(days.isin(*ENDLESS_DAYS), last)
        .when(days.isin(*BEGINLESS_DAYS), first)
        .otherwise(F.when(day.between(first, last), day))
    )
    return F.when(form.name.isin(*DAYS), counted).otherwise(said)


def _timestamp(text: Column, form: FieldForm | None, *, zoned: bool) -> Column:
    last, first = F.lit(_LAST_MOMENT).cast("timestamp"), F.lit(_FIRST_MOMENT).cast("timestamp")
    written = (F.substring(text, 5, 1) == "-") & (F.substring(text, 11, 1) == "T") & (F.substring(text, 1, 4) != "0000")
    if zoned:
        written &= (F.right(text, F.lit(1)) == "Z") | F.substring(text, -6, 1).isin("+", "-")
    plain = F.when(written, text.try_cast("timestamp"))
    endless = F.when(text.isin(*ENDLESS_TEXTS), last).when(text.isin(*BEGINLESS_TEXTS), first)
    said = F.coalesce(plain, endless)
    if form is None or zoned:
        return said
    units = text.try_cast("bigint")
    moment = F.timestamp_micros(_micros(units, form.name, TIMESTAMPS))
    counted = (
        F.when(units.isin(*ENDLESS), last)
        .when(units.isin(*BEGINLESS), first)
        .otherwise(F.when(moment.between(first, last), moment))
    )
    return F.when(form.name.isin(*TIMESTAMPS), counted).otherwise(said)


def _micros(units: Column, name: Column, per_second: dict[str, int]) -> Column:
    """Whole microseconds, rounded down, by the semantic type's units of a second; null beyond 64 bits."""
    thousandth = F.call_function("div", units - F.pmod(units, F.lit(1000)), F.lit(1000))
    by_units = {1_000: F.try_multiply(units, F.lit(1000)), _MICROS: units, 1_000_000_000: thousandth}
    names = {count: [name for name, per in per_second.items() if per == count] for count in by_units}
    chosen = F.when(F.lit(False), units)
    for count, micros in by_units.items():
        chosen = chosen.when(name.isin(*names[count]), micros)
    return chosen


def _time(text: Column, form: FieldForm | None, *, zone: str) -> Column:
    """Hours to microseconds; finer digits are cut off, as a time of Python's has no more."""
    fraction = F.rpad(F.substring(F.regexp_extract(text, _TIME, 2), 1, 6), 6, "0")
    said = F.concat(F.regexp_extract(text, _TIME, 1), F.lit("."), fraction, F.lit(zone))
    in_a_day = F.substring(text, 1, 2).between("00", "23")
    zoned = F.right(text, F.lit(1)) == "Z"
    plain = F.when(text.rlike(_TIME) & in_a_day & (zoned if zone else F.lit(True)), said)
    if form is None or zone:
        return plain
    past = _micros(text.try_cast("bigint"), form.name, TIMES)
    counted = F.when((past >= 0) & (past < _DAY_MICROS), F.date_format(F.timestamp_micros(past), "HH:mm:ss.SSSSSS"))
    return F.when(form.name.isin(*TIMES), counted).otherwise(plain)


def _interval(text: Column, form: FieldForm | None) -> Column:
    """Years and months as they are, all else in seconds: a day of PostgreSQL's has 24 hours when it is compared."""

    def part(number: int, unit: int) -> Column:
        return F.regexp_extract(text, _INTERVAL, number).cast("decimal(20,6)") * F.lit(unit).cast("decimal(6,0)")

    seconds = part(3, 86_400) + part(4, 3_600) + part(5, 60) + part(6, 1)
    months = (F.regexp_extract(text, _INTERVAL, 1), F.lit("Y"), F.regexp_extract(text, _INTERVAL, 2))
    written = F.concat(F.lit("P"), *months, F.lit("M0DT0H0M"), seconds.cast("decimal(26,6)").cast("string"), F.lit("S"))
    plain = F.when(text.rlike(_INTERVAL), written)
    if form is None:
        return plain
    whole = (text.try_cast("bigint").cast("decimal(20,0)") / F.lit(_MICROS)).cast("decimal(26,6)").cast("string")
    return F.when(form.name == DURATION, F.concat(F.lit("P0Y0M0DT0H0M"), whole, F.lit("S"))).otherwise(plain)


def _decimal(text: Column, form: FieldForm | None) -> Column:
    """Text that a cast to decimal takes."""
    if form is None:
        return text
    varying = unscaled(F.get_json_object(text, "$.value"), F.get_json_object(text, "$.scale"))
    fixed = unscaled(text, form.scale)
    return F.when(form.name == DECIMAL, fixed).when(form.name == VARIABLE_SCALE, varying).otherwise(text)


def _exact(text: Column, column: ColumnType) -> Column:
    """The decimal, null where the column's scale would round it: a cast alone rounds and says nothing."""
    value, point = text.try_cast(column.ddl), F.instr(text, ".")
    plain = (F.instr(F.upper(text), "E") == 0) & ((point == 0) | (F.length(text) - point <= column.scale))
    # As many digits behind the point as are free of the 38 that a decimal has, and none that it would round.
    free = _DECIMAL_DIGITS - (column.precision - column.scale)
    digits = F.length(F.regexp_extract(text, r"\.(\d+)", 1)) - F.coalesce(
        F.regexp_extract(text, r"[eE]([+-]?\d+)$", 1).try_cast("int"), F.lit(0)
    )
    same = value == text.try_cast(f"decimal({_DECIMAL_DIGITS},{free})")
    return F.when(plain, value).when((digits <= free) & same, value)


def _array(text: Column, items: ColumnType, form: FieldForm | None, *, is_flat: bool) -> Column:
    """The array as JSON of its items, each of which says by itself what it is; null of an array of arrays."""
    texts = F.from_json(text, "array<string>")
    opened = F.transform(texts, lambda item: _said(typed(item, items, form), items))
    pairs = F.arrays_zip(texts.alias("text"), opened.alias("value"))
    broken = F.exists(pairs, lambda pair: pair["text"].isNotNull() & pair["value"].isNull())
    if not is_flat:
        broken |= _is_nested(texts, items)
    is_array = F.substring(text, 1, 1) == "["
    return F.when(is_array & ~F.coalesce(broken, F.lit(True)), F.to_json(opened))


def _is_nested(texts: Column, items: ColumnType) -> Column:
    """Whether a list looks like an array of arrays: as in Python, of nulls alone or of the names of Java's classes."""
    if items.kind == "string" and items.meaning in ("", "uuid"):
        return F.exists(texts, lambda item: F.coalesce(item.rlike(f"^{INNER_ARRAY}$"), F.lit(False)))
    return (F.size(texts) > 0) & F.forall(texts, lambda item: item.isNull())


def _said(value: Column, column: ColumnType) -> Column:
    if column.kind == "timestamp":
        return F.date_format(value, _TO_THE_MICROSECOND)
    if column.kind == "binary":
        return base64_of(value)
    return value if column.kind in ("int", "long", "double", "boolean") else value.cast("string")
