"""Arrow in and out of a table of the store: the port, and the Arrow form of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import pyarrow as pa
import sqlalchemy as sa

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


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC) for year in (1, 9999))


def as_stored(connection: sa.Connection, micros: int) -> sa.ColumnElement[Any]:
    """A moment in microseconds since 1970, as a timestamp of this database; SQLite has text."""
    at = moment_of(micros)
    if connection.dialect.name == "postgresql":
        return sa.literal(at, sa.DateTime(timezone=True))
    return sa.literal(at.strftime("%Y-%m-%d %H:%M:%S.%fZ").rjust(27, "0"), sa.Text)


def moment_of(micros: int) -> datetime:
    """The same as Python has it; the nearest that it has."""
    low, high = ((one - _EPOCH) // timedelta(microseconds=1) for one in (_EARLIEST, _LATEST))
    return _EPOCH + timedelta(microseconds=min(max(micros, low), high))
