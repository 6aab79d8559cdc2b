"""Arrow in and out of a table of the store: the port, and the Arrow form of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from projections.declaring.columns import ColumnType


@dataclass(frozen=True)
class Part:
    """What one task writes in a load by many; whichever attempt of it comes first counts."""

    load: str
    number: int


class Target(Protocol):
    """One SQL table, reached from the driver and from executors alike: it travels to them pickled."""

    @property
    def relation(self) -> str:
        """The quoted name; its parts come from checked identifiers."""

    def append(self, data: pa.Table | pa.RecordBatchReader, *, part: Part | None = None) -> int:
        """Append Arrow rows and return how many; those of a part that is written already are left out."""

    def load(self) -> AbstractContextManager[str]:
        """Open a load by tasks for the length of the block, in which parts may name it; gives its name."""

    def fetch(self, columns: Mapping[str, ColumnType], *, order_by: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The rows in batches of ``arrow_schema``; texts are ordered by their bytes, nulls come first."""

    def extent(self) -> int:
        """The places that rows may have, in the unit of ``fetch_between``: what executors divide among them."""

    def fetch_between(self, columns: Mapping[str, ColumnType], low: int, high: int) -> Iterator[pa.RecordBatch]:
        """The rows at places from ``low`` inclusive to ``high`` exclusive, found without an index."""


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow form of rows on their way out of the store; decimals are text."""
    text = pa.string()
    return pa.schema([(name, text if c.kind == "decimal" else c.arrow()) for name, c in columns.items()])
