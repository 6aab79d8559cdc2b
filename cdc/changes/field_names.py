"""The names that columns have in records: the database's own, and in Avro those that Debezium makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cdc.errors import UnsupportedEncoding

_NO_AVRO = re.compile(r"[^A-Za-z0-9_]")
_BASIC_PLANE: Final = 0xFFFF


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
