"""Bytes as text, bits and big integers out of bytes, and what stands for a value that an update left alone.

All with native functions: four bytes, or one, at a time.

A change event names the text that it was written with for such a value. What Debezium makes of that text for other
types is computed only for a value that has its length: a length is read, base64 and digests cost as much as all else of
a value. A `when` asks first: what stands behind an `and` is computed for every row, once it occurs twice in a plan.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from projections.declaring.columns import ColumnType

_NUMBERS: Final = frozenset({"int", "long"})
_UUID_LIST: Final = 40  # bytes of the JSON of a list of one UUID
_HEX, _VARIANTS = "0123456789abcdef", "89ab" * 4


def base64_of(value: Column) -> Column:
    """Base64 in one line, as JSON has it; Spark's own has a line for every 76 characters."""
    return F.translate(F.base64(value), "\r\n", "")


def unscaled(encoded: Column, scale: Column) -> Column:
    """A number's bytes, two's complement and big-endian, as its digits with an exponent; up to sixteen bytes.

    Four bytes at a time: no function of Spark's reads more than eight, and no decimal has more than 38 digits.
    """
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
    exponent = (-scale.try_cast("int")).cast("string")
    return F.when(fits, F.concat(signed.try_cast("decimal(38,0)").cast("string"), F.lit("E"), exponent))


def bits(text: Column, length: int) -> Column:
    """Bits as text, the first one first: one bit is a boolean, more are bytes, the lowest first, zeros left out.

    Null where there are more than ``length``.
    """
    if length == 1:
        return F.when(text == "true", F.lit("1")).when(text == "false", F.lit("0"))
    size = (length + 7) // 8
    backwards = F.reverse(F.transform(F.sequence(F.lit(1), F.lit(size)), lambda at: _byte(text, at)))
    all_bits = F.array_join(backwards, "")
    beyond = F.substring(all_bits, 1, size * 8 - length)
    fits = (F.length(F.unbase64(text)) <= size) & ~beyond.contains("1")
    return F.when(fits, F.right(all_bits, F.lit(length)))


def _byte(encoded: Column, at: Column) -> Column:
    digits = F.substring(F.hex(F.unbase64(encoded)), at * 2 - 1, F.lit(2))
    return F.lpad(F.conv(F.when(digits == "", "00").otherwise(digits), 16, 2), 8, "0")


def placeholder() -> Column:
    """The text that a parsed change event was written with: Debezium's own where the event names none."""
    return F.coalesce(F.col("_v")[FIELD_UNAVAILABLE], F.lit(UNAVAILABLE))


def is_unavailable(text: Column, column: ColumnType, mark: Column) -> Column:
    """Whether a column's value stands for one that an update left alone; null or false where the value is null."""
    if column.items is not None:
        return _is_marked_list(text, column.items, mark)
    if column.kind == "binary":
        return (text == mark) | _is_base64(text, mark)
    return (text == mark) | _is_map(text, mark) if column.meaning == "map" else text == mark


def _is_base64(text: Column, mark: Column) -> Column:
    size = F.call_function("div", F.octet_length(mark) + 2, F.lit(3)) * 4
    return _equal_if(F.octet_length(text) == size, text, base64_of(mark.cast("binary")))


def _is_map(text: Column, mark: Column) -> Column:
    size = F.octet_length(mark) * 2 + 7
    return _equal_if(F.octet_length(text) == size, text, F.concat(F.lit('{"'), mark, F.lit('":"'), mark, F.lit('"}')))


def _is_marked_list(text: Column, items: ColumnType, mark: Column) -> Column:
    size = F.octet_length(text)
    if items.kind in _NUMBERS:
        # Codes have one digit to three, and a comma or a bracket each.
        of_codes = size.between(F.octet_length(mark) * 2 + 1, F.octet_length(mark) * 4 + 1)
        return _equal_if(of_codes, text, _codes(mark))
    of_text = _equal_if(size == F.octet_length(mark) + 4, text, F.concat(F.lit('["'), mark, F.lit('"]')))
    return of_text | _equal_if(size == _UUID_LIST, text, F.concat(F.lit('["'), _uuid(mark), F.lit('"]')))


def _equal_if(has_its_length: Column, text: Column, made: Column) -> Column:
    return F.when(has_its_length, text == made).otherwise(F.lit(False))


def _codes(mark: Column) -> Column:
    digits, count = F.hex(mark.cast("binary")), F.octet_length(mark)
    codes = F.transform(
        F.sequence(F.lit(1), count), lambda at: F.conv(F.substring(digits, at * 2 - 1, F.lit(2)), 16, 10)
    )
    return F.concat(F.lit("["), F.array_join(codes, ","), F.lit("]"))


def _uuid(mark: Column) -> Column:
    """The UUID that Java makes of the text's bytes: their MD5, with the version 3 and the variant put into it."""
    digits = F.md5(mark.cast("binary"))

    def part(start: int, length: int) -> Column:
        return F.substring(digits, start, length)

    variant = F.translate(part(17, 1), _HEX, _VARIANTS)
    dash = F.lit("-")
    groups = (part(1, 8), dash, part(9, 4), F.lit("-3"), part(14, 3), dash, variant, part(18, 3), dash, part(21, 12))
    return F.concat(*groups)
