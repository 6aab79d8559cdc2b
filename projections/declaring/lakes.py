"""Delta tables that views fill: the current rows, which other engines read, and a feed of their changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from projections.declaring.columns import ColumnType
from projections.errors import InvalidDefinition

RESET: Final = ""
"""The key of a record that is no row: those behind it are all rows of the table, with columns that may be others."""

_PATH: Final = re.compile(r"(?!delta:)([a-zA-Z][a-zA-Z0-9+.-]+:)?/\S+")


def checked_lake(path: str | None) -> str | None:
    """Return the path of a Delta table without a slash at its end. Raises InvalidDefinition if it is not absolute."""
    if path is None or _PATH.fullmatch(path):
        return None if path is None else path.rstrip("/")
    raise InvalidDefinition(
        f"a Delta table cannot be at {path!r}",
        remedy="give an absolute path or a URI, such as lake='/lake/orders' or lake='s3a://lake/orders'",
    )


def named(place: str) -> str:
    """A topic, or the path of a Delta table, as an error names it."""
    return f"{'table' if '/' in place else 'topic'} {place!r}"


@dataclass(frozen=True)
class LakeChange:
    """Rows that wait for a Delta table: number, key and value as JSON, the newest of each key; no value deletes."""

    key: Sequence[str]
    columns: Mapping[str, ColumnType]
    rows: list[tuple[int, str, str | None]]


class LakeTables(Protocol):
    """The Delta tables of views. The writer of each is the runner of its group."""

    def ensure(self, paths: Sequence[str]) -> list[str]:
        """Make those that are missing, without columns, and return their paths."""

    def ids(self, paths: Sequence[str]) -> Mapping[str, str]:
        """The ids by which a table differs from an earlier one at its path."""

    def holding(self, paths: Sequence[str]) -> list[str]:
        """Those that anything was written to."""

    def write(self, path: str, group: str, change: LakeChange) -> None:
        """Merge the rows whose numbers are above those that the group has written; RunSuperseded for a lost race."""
