"""The keys of a changelog's records as texts, one text for one value: that of `cdc.comparing.canonical`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from cdc.changes.change_event import ChangeDecoder
from projections.declaring.columns import ColumnType
from projections.declaring.tables import ChangelogTable
from projections.stores.dialects import POSTGRES


def key_decoder(table: ChangelogTable) -> Callable[[bytes, str], tuple[str, ...]]:
    """Return what reads the key of a record at a place; UndecodableChange.

    Keys in Avro are not read: their records are not written again.
    """
    fields = {table.record_name(name): table.columns[name] for name in table.key}
    columns = (sa.Column(field, _type_of(kind), primary_key=True) for field, kind in fields.items())
    decoder = ChangeDecoder(sa.Table(table.name or "rows", sa.MetaData(), *columns))

    def decode(key: bytes, place: str) -> tuple[str, ...]:
        row = decoder.decode(key, None, offset=0, place=place).key
        return tuple(key_text(row[field]) for field in fields)

    return decode


def _type_of(column: ColumnType) -> sa.types.TypeEngine[Any]:
    if column.meaning == "uuid":
        return sa.Uuid()
    if column.kind == "timestamp":
        return sa.DateTime(timezone=column.meaning == "zoned")
    return POSTGRES.column_type(column)


def key_text(value: Any) -> str:
    """The canonical text of a value of a key."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return _trimmed(f"{value:f}") if value else "0"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        plain = value.replace(tzinfo=None).isoformat(" ")
        return plain.rstrip("0") if value.microsecond else plain
    return str(value)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
