"""Columns that a model declares, in records: their names in Avro, and those that a row does not have.

A record that has the column says what its value is, NULL too. One that lacks it says nothing: the column was dropped or
renamed in the source, the connector leaves it out, or it was added after the record was written, with a default or
without. None of these is NULL unless the reader says that it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cdc.changes import rules
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
# The setting of a connector for its placeholder.
SETTING: Final = "unavailable.value.placeholder"
_DIGITS: Final = 32  # hexadecimal ones: 128 bits


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


def own_placeholder(*identity: str) -> str:
    """Return a text that no other writer of change events has, and that no user writes by chance.

    Debezium's own text is public, and a user may have written it into a row.
    """
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return f"__factfold_unavailable_{digest[:_DIGITS]}"


def placeholder_of(event: Mapping[str, Any]) -> str:
    """Return the text that a change event was written with.

    Each change event of our connectors names its text. One that names none is of an older or a foreign connector, and
    has Debezium's.
    """
    return str(event.get(rules.FIELD_UNAVAILABLE) or rules.UNAVAILABLE)


def is_unavailable(value: Any, placeholder: str) -> bool:
    """Whether a column's value, as it was sent, stands for one that an update left alone.

    PostgreSQL's write-ahead log lacks such a value if it is stored out of line (TOAST). Debezium sends a text in its
    place, or what it makes of that text for another type. For bytea that is base64, for an array a list of the text.
    For an array of whole numbers it is the codes of its bytes, for one of UUIDs a list of its UUID. For a map it is a
    map of the text to itself. An array of any other type comes as null, like a real null (tests/recordings).
    """
    if isinstance(value, list):
        return value in _lists(placeholder)
    if isinstance(value, dict):
        return value == {placeholder: placeholder}
    return value in _flat(placeholder)


def uuid_of(placeholder: str) -> UUID:
    """Return the UUID that Java makes of a text's bytes (`nameUUIDFromBytes`): version 3, without a namespace."""
    return UUID(
        bytes=hashlib.md5(placeholder.encode(errors="surrogatepass"), usedforsecurity=False).digest(), version=3
    )


@lru_cache(maxsize=64)
def _flat(placeholder: str) -> tuple[str | bytes, ...]:
    data = placeholder.encode(errors="surrogatepass")
    return placeholder, base64.b64encode(data).decode(), data


@lru_cache(maxsize=64)
def _lists(placeholder: str) -> tuple[list[str | int], ...]:
    return [placeholder], [str(uuid_of(placeholder))], list(placeholder.encode(errors="surrogatepass"))
