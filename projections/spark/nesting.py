"""Columns of lists, maps and records: JSON text wherever they are stored, Spark's own types to a view's function.

The text is canonical, because rows are compared by it: fields in the order of the type, nulls written, maps by their
keys, times in UTC with six digits. What does not read back stops the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from projections.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
_WRITTEN: Final = {**_TIMES, "ignoreNullFields": "false"}
# Jackson stops at 20 million characters by itself.
_READ: Final = {**_TIMES, "mode": "FAILFAST", "maxStringLen": str((1 << 31) - 1)}


def opened_up(rows: DataFrame, columns: Mapping[str, ColumnType]) -> DataFrame:
    """The rows with what their columns' texts stand for."""
    from pyspark.sql import functions as F

    nested = {c: F.from_json(c, kind.shape, _READ) for c, kind in columns.items() if kind.shape}
    return rows.withColumns(nested) if nested else rows


def as_stored(column: Column, shape: str) -> Column:
    """The text of a list, a map or a record of the given type; of null, null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DataType

    return F.to_json(_ordered(column.cast(shape), DataType.fromDDL(shape)), _WRITTEN)


def _ordered(value: Column, kind: DataType) -> Column:
    """The same value with its maps by their keys."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case ArrayType():
            return F.transform(value, lambda item: _ordered(item, kind.elementType))
        case MapType():
            keys = F.array_sort(F.map_keys(value))
            entries = F.transform(keys, lambda key: F.struct(key, _ordered(value[key], kind.valueType)))
            return F.map_from_entries(entries)
        case StructType():
            fields = (_ordered(value[field.name], field.dataType).alias(field.name) for field in kind.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
    return value
