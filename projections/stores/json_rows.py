"""Rows as JSON text, written by the database: what a view topic holds, alike for every database that keeps views.

Numbers are numbers, a decimal is text with all digits of its scale, a time is text in UTC with six digits and a Z,
bytes are hexadecimal digits, and a double that is no finite number is its name. Lists, maps and records are what their
text is. No spaces; columns in the view's order.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import sqlalchemy as sa

from projections.declaring.columns import ColumnType, Kind

Text = sa.ColumnElement[str]
_Spelling = Mapping[Kind, Callable[[sa.ColumnElement[Any]], Text]]

_LARGEST_DOUBLE: Final = 1.7976931348623157e308


def json_object(connection: sa.Connection, rows: sa.FromClause, columns: Iterable[tuple[str, ColumnType]]) -> Text:
    """An expression over ``rows``: a JSON object of some of their columns."""
    spelling = _POSTGRES if connection.dialect.name == "postgresql" else _SQLITE
    parts: list[Text] = []
    for name, kind in columns:
        spelled = _nested if kind.shape else spelling[kind.kind]
        value = sa.case((rows.c[name].is_(None), "null"), else_=spelled(rows.c[name]))
        parts += [sa.literal(f"{',' if parts else '{'}{json.dumps(name)}:"), value]
    return functools.reduce(operator.add, [*parts, sa.literal("}")])


def _cast(column: sa.ColumnElement[Any]) -> Text:
    return sa.cast(column, sa.Text)


def _nested(column: sa.ColumnElement[Any]) -> Text:
    """A list, a map or a record is stored as its JSON."""
    return sa.type_coerce(column, sa.Text)


def _quoted(text: sa.ColumnElement[Any]) -> Text:
    """Text that needs no escapes."""
    return sa.literal('"') + sa.type_coerce(text, sa.Text) + sa.literal('"')


def _as_json(column: sa.ColumnElement[Any]) -> Text:
    return sa.cast(sa.func.to_json(column), sa.Text)


def _moment(column: sa.ColumnElement[Any]) -> Text:
    return _quoted(sa.func.to_char(sa.func.timezone("UTC", column), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))


_POSTGRES: Final[_Spelling] = {
    "string": _as_json, "int": _cast, "long": _cast, "double": _as_json, "boolean": _cast,
    "decimal": lambda column: _quoted(_cast(column)),
    "timestamp": _moment,
    "date": lambda column: _quoted(sa.func.to_char(column, "YYYY-MM-DD")),
    "binary": lambda column: _quoted(sa.func.encode(column, "hex")),
}  # fmt: skip


def _double(column: sa.ColumnElement[Any]) -> Text:
    """With as many digits as tell any two doubles apart: SQLite's own JSON has fifteen."""
    infinite = sa.case((column > 0, sa.literal('"Infinity"')), else_=sa.literal('"-Infinity"'))
    finite = sa.func.printf("%!.17g", column)
    return sa.case((sa.func.abs(column) > _LARGEST_DOUBLE, infinite), else_=finite)


_SQLITE: Final[_Spelling] = {
    "string": lambda column: sa.func.json_quote(column),
    "int": _cast, "long": _cast, "double": _double,
    "boolean": lambda column: sa.case((column, "true"), else_="false"),
    "decimal": _quoted,
    "timestamp": lambda column: _quoted(sa.func.replace(column, " ", "T")),
    "date": _quoted,
    "binary": lambda column: _quoted(sa.func.lower(sa.func.hex(column))),
}  # fmt: skip
