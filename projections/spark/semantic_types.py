"""Values of change events as Spark columns: what `cdc.column_types` does in Python, inside the JVM.

Every value comes as text: a JSON string's content, the JSON of anything else, base64 of bytes. With what the record's
schema says of the field, a column of days, of units since 1970 or of a decimal's bytes becomes the type it stands for.
Types that Spark lacks (times of day, intervals, arrays) stay text that says by itself what it is. Null is a value that
does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.rules import (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_CODES,
    UNAVAILABLE_UUID,
)
from cdc.semantic_types import (
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
from projections.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import Column

_MARKS: Final = (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    f'["{UNAVAILABLE}"]',
    f'["{UNAVAILABLE_UUID}"]',
    f"[{','.join(map(str, UNAVAILABLE_CODES))}]",
    f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',
)
_MICROS: Final = 1_000_000
_DAY_MICROS: Final = 86_400 * _MICROS
_FIRST, _LAST = "0001-01-01", "9999-12-31"
_FIRST_MOMENT, _LAST_MOMENT = f"{_FIRST} 00:00:00", f"{_LAST} 23:59:59.999999"
_TO_THE_MICROSECOND = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


@dataclass(frozen=True)
class FieldForm:
    """What the schema says of a field, as columns: semantic type's name, decimal's scale; of an array's items too."""

    name: Column
    scale: Column
    items: FieldForm | None = None

    @classmethod
    def fixed(cls, form: Form) -> FieldForm:
        """A form that is the same in all records."""
        from pyspark.sql import functions as F

        items = None if form.items is None else cls.fixed(form.items)
        return cls(F.lit(form.name).cast("string"), F.lit(form.scale).cast("string"), items)


def is_unavailable(text: Column) -> Column:
    """Whether a text stands for a value that an update left alone."""
    return text.isin(*_MARKS)


def typed(text: Column, column: ColumnType, form: FieldForm | None) -> Column:
    """The text as the column's type; null where it does not fit, and where it is unavailable."""
    from pyspark.sql import functions as F

    present = F.when(~is_unavailable(text), text) if column.varies_in_length else text
    if column.items is not None:
        return _array(present, column.items, form)
    if column.bits is not None:
        return _bits(present, column.bits)
    match column.kind:
        case "string":
            return present if form is None else _text(present, form)
        case "date":
            return _date(present, form)
        case "timestamp":
            return _timestamp(present, form)
        case "decimal":
            return _decimal(present, form).try_cast(column.ddl)
        case "binary":
            return F.unbase64(present)
    return present.try_cast(column.ddl)


def _date(text: Column, form: FieldForm | None) -> Column:
    from pyspark.sql import functions as F

    last, first = F.lit(_LAST).cast("date"), F.lit(_FIRST).cast("date")
    # 2013-01-31, or 2013-01-31Z as isostring has it; years of more digits are longer.
    plain = F.when(F.length(text).between(10, 11), F.substring(text, 1, 10).try_cast("date"))
    said = F.coalesce(plain, F.when(text.isin(*ENDLESS_TEXTS), last).when(text.isin(*BEGINLESS_TEXTS), first))
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


def _timestamp(text: Column, form: FieldForm | None) -> Column:
    from pyspark.sql import functions as F

    last, first = F.lit(_LAST_MOMENT).cast("timestamp"), F.lit(_FIRST_MOMENT).cast("timestamp")
    plain = F.when(F.substring(text, 5, 1) == "-", text.try_cast("timestamp"))  # years have four digits here
    said = F.coalesce(plain, F.when(text.isin(*ENDLESS_TEXTS), last).when(text.isin(*BEGINLESS_TEXTS), first))
    if form is None:
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
    from pyspark.sql import functions as F

    thousandth = F.call_function("div", units - F.pmod(units, F.lit(1000)), F.lit(1000))
    by_units = {1_000: F.try_multiply(units, F.lit(1000)), _MICROS: units, 1_000_000_000: thousandth}
    names = {count: [name for name, per in per_second.items() if per == count] for count in by_units}
    chosen = F.when(F.lit(False), units)
    for count, micros in by_units.items():
        chosen = chosen.when(name.isin(*names[count]), micros)
    return chosen


def _text(text: Column, form: FieldForm) -> Column:
    """Text as it is; a time of day and a duration as ISO 8601 has them, in the parts that Debezium writes."""
    from pyspark.sql import functions as F

    units = text.try_cast("bigint")
    past = _micros(units, form.name, TIMES)
    time = F.when((past >= 0) & (past < _DAY_MICROS), F.date_format(F.timestamp_micros(past), "HH:mm:ss.SSSSSS"))
    seconds = (units.cast("decimal(20,0)") / F.lit(_MICROS)).cast("decimal(26,6)").cast("string")
    duration = F.concat(F.lit("P0Y0M0DT0H0M"), seconds, F.lit("S"))
    return F.when(form.name.isin(*TIMES), time).when(form.name == DURATION, duration).otherwise(text)


def _decimal(text: Column, form: FieldForm | None) -> Column:
    """Text that a cast to decimal takes."""
    from pyspark.sql import functions as F

    if form is None:
        return text
    varying = _unscaled(F.get_json_object(text, "$.value"), F.get_json_object(text, "$.scale"))
    fixed = _unscaled(text, form.scale)
    return F.when(form.name == DECIMAL, fixed).when(form.name == VARIABLE_SCALE, varying).otherwise(text)


def _unscaled(encoded: Column, scale: Column) -> Column:
    """A number's bytes, two's complement and big-endian, as its digits with an exponent; up to sixteen bytes.

    Four bytes at a time: no function of Spark's reads more than eight, and no decimal has more than 38 digits.
    """
    from pyspark.sql import functions as F

    digits = F.hex(F.unbase64(encoded))
    negative = F.substring(digits, 1, 1) >= "8"
    # Of a negative number, the bytes that are left when one is added to it: -1 - x.
    magnitude = F.when(negative, F.translate(digits, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(digits)
    padded = F.lpad(magnitude, 32, "0")
    words = [F.conv(F.substring(padded, at, 8), 16, 10).cast("decimal(38,0)") for at in (1, 9, 17, 25)]
    total = words[0]
    for word in words[1:]:
        total = F.try_add(F.try_multiply(total, F.lit(1 << 32).cast("decimal(11,0)")).try_cast("decimal(38,0)"), word)
    signed = F.when(negative, F.lit(-1).cast("decimal(38,0)") - total).otherwise(total)
    fits = (F.length(digits) <= 32) & (F.length(digits) > 0)
    return F.when(fits, F.concat(signed.try_cast("decimal(38,0)").cast("string"), F.lit("E-"), scale))


def _bits(text: Column, length: int) -> Column:
    """Bits as text, the first one first: one bit is a boolean, more are bytes, the lowest first, zeros left out."""
    from pyspark.sql import functions as F

    backwards = F.reverse(F.transform(F.sequence(F.lit(1), F.lit((length + 7) // 8)), lambda at: _byte(text, at)))
    bits = F.substring(F.array_join(backwards, ""), -length, length)
    one = F.when(text == "true", F.lit("1")).when(text == "false", F.lit("0"))
    return one.when(text.isNotNull(), bits)


def _byte(encoded: Column, at: Column) -> Column:
    from pyspark.sql import functions as F

    digits = F.substring(F.hex(F.unbase64(encoded)), at * 2 - 1, F.lit(2))
    return F.lpad(F.conv(F.when(digits == "", "00").otherwise(digits), 16, 2), 8, "0")


def _array(text: Column, items: ColumnType, form: FieldForm | None) -> Column:
    """The array as JSON whose items say by themselves what they are; as it came where they do."""
    from pyspark.sql import functions as F

    if form is None or form.items is None or items.kind not in ("date", "timestamp", "decimal", "string"):
        return text
    of_items = form.items
    texts = F.from_json(text, "array<string>")
    opened = F.transform(texts, lambda item: _said(typed(item, items, of_items), items))
    broken = F.exists(F.arrays_zip(texts.alias("a"), opened.alias("b")), lambda p: p["a"].isNotNull() & p["b"].isNull())
    return F.when(~F.coalesce(broken, F.lit(False)), F.to_json(opened, {"ignoreNullFields": "false"}))


def _said(value: Column, column: ColumnType) -> Column:
    from pyspark.sql import functions as F

    return F.date_format(value, _TO_THE_MICROSECOND) if column.kind == "timestamp" else value.cast("string")
