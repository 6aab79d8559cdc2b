"""One text for one value in a SQLite file, as SQL: of a captured column, and of a state's column made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cdc.comparing.canonical import ColumnForm, Kind
from cdc.embedded.sqlite_values import dashed

_TEXT: Final = "CAST({0} AS TEXT)"
_ZEROS: Final = "'000000'"


def _same(column: str, _: ColumnForm) -> str:
    return _TEXT.format(column)


def _double(column: str, _: ColumnForm) -> str:
    number = f"typeof({column}) IN ('real', 'integer')"
    return f"CASE WHEN {number} THEN printf('%!.17g', {column} + 0.0) ELSE {_TEXT.format(column)} END"


def _decimal(column: str, form: ColumnForm) -> str:
    """As the capture rounds it, and without the sign of a zero."""
    written, number = f"printf('%.{form.scale:d}f', {column})", f"typeof({column}) IN ('real', 'integer')"
    zero = f"-{0:.{form.scale}f}"
    plain = f"CASE {written} WHEN '{zero}' THEN substr({written}, 2) ELSE {written} END"
    return f"CASE WHEN {number} THEN {plain} ELSE {_TEXT.format(column)} END"


def _uuid(column: str, _: ColumnForm) -> str:
    return f"CASE WHEN length({column}) = 32 THEN {dashed(column)} ELSE {_TEXT.format(column)} END"


def _moment(column: str, _: ColumnForm) -> str:
    """In UTC, with six digits and a Z; a moment without an offset is UTC."""
    text = _TEXT.format(column)
    rest = f"substr({text}, 20)"
    offset = f"CASE WHEN substr({rest}, -1) IN ('Z', 'z') THEN 'Z' WHEN substr({rest}, -6, 1) IN ('+', '-') THEN"
    offset = f"{offset} substr({rest}, -6) ELSE '' END"
    digits = f"substr({rest}, 2, length({rest}) - length({offset}) - 1)"
    whole = f"strftime('%Y-%m-%d %H:%M:%S', substr({text}, 1, 19) || {offset})"
    written = f"{whole} || '.' || substr({digits} || {_ZEROS}, 1, 6) || 'Z'"
    return f"coalesce({written}, {text})"


def _time(column: str, _: ColumnForm) -> str:
    text = _TEXT.format(column)
    return f"substr({text}, 1, 8) || '.' || substr(substr({text}, 10) || {_ZEROS}, 1, 6)"


_SOURCE: Final[Mapping[Kind, Callable[[str, ColumnForm], str]]] = {
    **dict.fromkeys(("integer", "text", "boolean", "date"), _same),
    **dict.fromkeys(("moment", "local moment"), _moment),
    "double": _double,
    "decimal": _decimal,
    "uuid": _uuid,
    "time": _time,
}


def source_text(form: ColumnForm, column: str) -> str | None:
    """Return SQL of the text of a captured column; None for a form without one."""
    expression = _SOURCE.get(form.kind)
    return None if expression is None else expression(column, form)


def state_text(form: ColumnForm, column: str) -> str:
    """Return SQL of the text of a state's column."""
    return _double(column, form) if form.kind == "double" else _TEXT.format(column)
