"""Columns that a model declares, in records: their names in Avro, and those that a row does not have.

A record that has the column says what its value is, NULL too. One that lacks it says nothing: the column was dropped or
renamed in the source, the connector leaves it out, or it was added after the record was written, with a default or
without. None of these is NULL unless the reader says that it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import InvalidConnector, UnsupportedEncoding

if TYPE_CHECKING:
    from sqlalchemy import Column, Table

CAUSE: Final = (
    "the record has no column {columns}, which {table} declares: the column was dropped or renamed in the source, is "
    "not captured, or is newer than the record"
)
_IF_NULL: Final = "if such rows have NULL in it, declare null_if_absent=[{columns}]"
_NO_AVRO = re.compile(r"[^A-Za-z0-9_]")
_BASIC_PLANE: Final = 0xFFFF


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


def avro_name(column: str) -> str:
    """Return a column's name as `field.name.adjustment.mode=avro` writes it, seen on a live connector.

    An underscore replaces each character that Avro does not take, and two replace one outside the basic plane, which
    has two characters in Java. Another one precedes a leading digit.
    """
    name = _NO_AVRO.sub(lambda match: "_" * (1 + (ord(match[0]) > _BASIC_PLANE)), column)
    return f"_{name}" if name[:1].isdigit() else name


def avro_names(columns: Iterable[str], *, table: str) -> dict[str, str]:
    """Return the Avro name of each column; UnsupportedEncoding if two have one name."""
    names: dict[str, str] = {}
    for column in columns:
        name = avro_name(column)
        if (other := names.setdefault(name, column)) != column:
            raise UnsupportedEncoding(
                f"columns {other!r} and {column!r} of table {table} have the same name in Avro: {name}",
                remedy="capture the table as JSON, or leave one of them out (column.exclude.list and the model)",
                place=table,
            )
    return {column: name for name, column in names.items()}
