"""A digest of a table's rows: equal for equal rows, whatever computed them.

sha256 over the rows in the order of their key (texts by their bytes), every value as text, null as a zero byte, values
divided by 0x1f and rows by 0x1e. Doubles are refused: two correct computations may differ in their last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from projections.errors import InvalidDefinition


def digest_rows(batches: Iterable[pa.RecordBatch]) -> tuple[str, int]:
    """The digest (64 hexadecimal digits) and number of rows of batches that come sorted by key."""
    digest, rows = hashlib.sha256(), 0
    for batch in batches:
        rows += batch.num_rows
        if batch.num_rows:
            digest.update("".join(_lines(batch).to_pylist()).encode())
    return digest.hexdigest(), rows


def _lines(batch: pa.RecordBatch) -> pa.Array:
    """One text a row; joined column by column, not row by row."""
    texts = [_texts(batch.column(i), batch.schema.field(i).name) for i in range(batch.num_columns)]
    joined = pc.binary_join_element_wise(*texts, "\x1f") if len(texts) > 1 else texts[0]
    return pc.binary_join_element_wise(joined, "", "\x1e")


def _texts(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_floating(column.type):
        raise InvalidDefinition(
            f"column {name!r} is a floating-point number, which has no digest", remedy="use Decimal or leave it out"
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_binary(column.type):
        column = pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())
    return pc.fill_null(column.cast(pa.string()), "\x00")
