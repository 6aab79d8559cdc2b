"""Columns that a model declares and a change event's row does not have.

A record that has the column says what its value is, NULL too. One that lacks it says nothing: the column was dropped or
renamed in the source, the connector leaves it out, or it was added after the record was written, with a default or
without. None of these is NULL unless the reader says that it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import InvalidConnector

if TYPE_CHECKING:
    from sqlalchemy import Column, Table

CAUSE: Final = (
    "the record has no column {columns}, which {table} declares: the column was dropped or renamed in the source, is "
    "not captured, or is newer than the record"
)
_IF_NULL: Final = "if such rows have NULL in it, declare null_if_absent=[{columns}]"


def nullable_columns(table: Table, names: Iterable[str], columns: Mapping[str, Column[Any]]) -> frozenset[str]:
    """Return the columns that are null in a row that lacks them; ``columns`` are the table's by their names.

    Raises InvalidConnector for a column that the model does not have, of its key, or that is NOT NULL.
    """
    known = {name for name, column in columns.items() if column.nullable and not column.primary_key}
    for name in names:
        if name not in known:
            raise InvalidConnector(
                f"null_if_absent names {name!r}, which is no nullable column of table {table}",
                remedy="name columns outside the key that the model declares as nullable",
                place=f"{table}.{name}",
            )
    return frozenset(names)


def remedy_of(columns: Sequence[str], table: str) -> str:
    """Return what helps a reader of rows: the rows read again have the column."""
    read = f"read the rows again (factfold cdc snapshot take … --table {table}) and rebuild"
    return f"take it out of the model, or {read}; {_declared(columns)}"


def remedy_of_history(columns: Sequence[str]) -> str:
    """Return what helps a reader of all changes: rows that are read again are not what the row was."""
    return f"take it out of the model; {_declared(columns)}"


def _declared(columns: Sequence[str]) -> str:
    return _IF_NULL.format(columns=", ".join(map(repr, columns)))
