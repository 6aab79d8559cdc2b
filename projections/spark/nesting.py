"""Columns of lists, maps and records: JSON text wherever they are stored, Spark's own types to a view's function.

The text is canonical, because rows are compared by it: no spaces, fields in the order of the type, nulls written, maps
by their keys, decimals as text with all digits of their scale, times in UTC with six digits, no negative zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, DoubleType, MapType, StringType, StructType

from projections.declaring.columns import ColumnType, Kind
from projections.errors import InvalidDefinition

_WRITTEN: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC", "ignoreNullFields": "false",
}  # fmt: skip
_BAD: Final = "_bad"
# Jackson stops at 20 million characters by itself.
_READ: Final = {"timeZone": "UTC", "maxStringLen": str((1 << 31) - 1)}
_KINDS: Final[Mapping[str, Kind]] = {
    "string": "string", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "long", "float": "double",
    "double": "double", "boolean": "boolean", "timestamp": "timestamp", "date": "date", "binary": "binary",
}  # fmt: skip
JSON_NULL: Final = "null"  # what many a mapper stores where it means no value


def opened_up(rows: DataFrame, columns: Mapping[str, ColumnType]) -> DataFrame:
    """The rows with what their columns' texts stand for; a text that is not ours fails the query."""
    strict = {**_READ, "mode": "FAILFAST"}
    nested = {c: F.from_json(c, kind.shape, strict) for c, kind in columns.items() if kind.shape}
    return rows.withColumns(nested) if nested else rows


def canonical(text: Column, shape: str) -> Column:
    """The text of any JSON that is of the type; null where it is not, at whatever depth, and for JSON's null.

    Fields that the type does not have are left away, those that are missing are null.
    """
    whole = F.concat(F.lit('{"value":'), text, F.lit("}"))
    options = {**_READ, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    read = F.from_json(whole, f"struct<value: {shape}, {_BAD}: string>", options)
    # An array of one: named in a lambda, what is read is read once, and not once for each of its parts.
    texts = F.transform(F.array(read), lambda one: F.when(_is_whole(one, text, shape), as_stored(one["value"], shape)))
    return texts[0]


def _is_whole(read: Column, text: Column, shape: str) -> Column:
    """Whether all of a text was read: one part that does not fit leaves the text among what is corrupt."""
    whole = read[_BAD].isNull()
    # A name that comes twice is no map's; the parser of variants looks for it.
    return whole & F.try_parse_json(text).isNotNull() if "map<" in shape else whole


def as_stored(column: Column, shape: str) -> Column:
    """The text of a list, a map or a record of the given type; of null, null."""
    return F.to_json(_said(column.cast(shape), DataType.fromDDL(shape)), _WRITTEN)


def _said(value: Column, kind: DataType) -> Column:
    """The same value in the form of which there is but one text."""
    match kind:
        case ArrayType():
            return F.transform(value, lambda item: _said(item, kind.elementType))
        case MapType():
            entries = F.array_sort(F.map_entries(value), _by_key)
            return F.map_from_entries(
                F.transform(entries, lambda entry: F.struct(entry["key"], _said(entry["value"], kind.valueType)))
            )
        case StructType():
            fields = (_said(value[field.name], field.dataType).alias(field.name) for field in kind.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
        case DecimalType():
            return value.cast("string")
        case DoubleType():
            return value + F.lit(0.0)
    return value


def _by_key(one: Column, other: Column) -> Column:
    return F.when(one["key"] < other["key"], -1).when(one["key"] > other["key"], 1).otherwise(0)


def column_type(kind: DataType, place: str) -> ColumnType:
    """The type of a column of Spark's; InvalidDefinition for one that no view has."""
    if isinstance(kind, ArrayType | MapType | StructType):
        return ColumnType("string", shape=_shape(kind, place))
    simple = kind.simpleString()
    if digits := re.fullmatch(r"decimal\((\d+),(\d+)\)", simple):
        return ColumnType("decimal", int(digits[1]), int(digits[2]))
    if simple in _KINDS:
        return ColumnType(_KINDS[simple])
    raise InvalidDefinition(
        f"a view column cannot be of type {simple}", remedy="select its parts, or cast it", place=place
    )


def _shape(kind: DataType, place: str) -> str:
    """The type as a stored column has it, in Spark's DDL, at any depth."""
    match kind:
        case ArrayType():
            return f"array<{_shape(kind.elementType, place)}>"
        case MapType(keyType=StringType()):
            return f"map<string,{_shape(kind.valueType, place)}>"
        case StructType():
            fields = (f"`{f.name.replace('`', '``')}`: {_shape(f.dataType, f'{place}.{f.name}')}" for f in kind.fields)
            return f"struct<{', '.join(fields)}>"
        case MapType():
            raise InvalidDefinition(
                f"{kind.simpleString()} has no text: JSON's names are texts",
                remedy="give the map texts for keys",
                place=place,
            )
    return column_type(kind, place).ddl
