"""Bytes as text, and bits and big integers out of bytes, with native functions: four bytes, or one, at a time."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


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
