"""Keys of rows in SQL: two rows held against each other, where a part of the key may be null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from projections.declaring.columns import ColumnType, Kind

# Any value of the type will do: whether the column is null is compared separately.
_INSTEAD_OF_NULL: Final[Mapping[Kind, str]] = {
    "string": "''", "int": "0", "long": "0", "double": "0", "boolean": "false", "decimal": "0", "binary": "''",
    "date": "DATE '1970-01-01'", "timestamp": "TIMESTAMPTZ '1970-01-01 00:00:00Z'",
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """The columns that tell rows apart; ``nullable``, where null is a value of its own among them.

    SQLite compares such values by ``IS``, with an index. PostgreSQL uses neither index nor hash table for ``IS NOT
    DISTINCT FROM``; it does for two equalities (``by_equality``): of the values, with another in the place of null, and
    of whether they are null. (SQLite 3.40 finds nothing by an index of such expressions where it should.)
    """

    columns: Mapping[str, ColumnType]
    nullable: bool = False
    by_equality: bool = True

    def same(self, left: sa.FromClause, right: sa.FromClause, named: Key | None = None) -> sa.ColumnElement[bool]:
        """Whether a row of one table has the key of a row of another, which may have it under other names."""
        pairs = zip(self.parts(left), (named or self).parts(right), strict=True)
        if self.nullable and not self.by_equality:
            return sa.and_(*(ours.is_not_distinct_from(theirs) for ours, theirs in pairs))
        return sa.and_(*(ours == theirs for ours, theirs in pairs))

    def parts(self, table: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        """What is compared, and therefore indexed."""
        if self.nullable and self.by_equality:
            return [part for name, column in self.columns.items() for part in _parts(table.c[name], column)]
        return self.of(table)

    def of(self, table: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        """The key's columns in a table."""
        return [table.c[name] for name in self.columns]

    def is_null(self, table: sa.FromClause) -> sa.ColumnElement[bool]:
        """Whether every part of a key that may be null is, or any of one that may not."""
        nulls = [table.c[name].is_(None) for name in self.columns]
        return sa.and_(*nulls) if self.nullable else sa.or_(*nulls)


def _parts(column: sa.ColumnElement[Any], kind: ColumnType) -> tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]:
    return sa.func.coalesce(column, sa.literal_column(_INSTEAD_OF_NULL[kind.kind])), column.is_(None)
