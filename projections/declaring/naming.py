"""Names that may become tables and columns of every store."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Final

from projections.errors import InvalidDefinition

IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Of a column too, in whatever case a captured table has it.
COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
ALL_ROWS: Final = "all_rows"  # a column that all rows of a stage share, whose partition is all of them
ROW_KEY_PART: Final = "row_key_"  # begins columns that hold the key of a row as texts: in a part of a union
_SHOWN: Final = 8


def checked_identifier(name: str, *, what: str) -> str:
    """The name itself, when it may become part of a SQL table or column name."""
    if isinstance(name, str) and IDENTIFIER.fullmatch(name):
        return name
    raise InvalidDefinition(
        f"{what} {name!r} is not a usable name",
        remedy="use lower-case letters, digits and underscores, a letter first, at most 40",
    )


def listed(names: Sequence[str]) -> str:
    """Some names on one line, and how many there are beyond."""
    some = ", ".join(names[:_SHOWN])
    return some if len(names) <= _SHOWN else f"{some} and {len(names) - _SHOWN} more"


def is_column(name: str) -> bool:
    """Whether a name may become a column's in every store."""
    return isinstance(name, str) and COLUMN.fullmatch(name) is not None


def checked_columns(names: Sequence[str], *, what: str) -> tuple[str, ...]:
    """The names themselves, if they may become columns of a SQL table; Spark and SQLite tell none apart by case."""
    known: dict[str, str] = {}
    for name in names:
        if not is_column(name):
            raise InvalidDefinition(
                f"{what} {name!r} is not a usable name",
                remedy="use letters, digits and underscores, a letter first, at most 40",
            )
        if known.setdefault(name.lower(), name) != name:
            raise InvalidDefinition(
                f"{what}s {known[name.lower()]!r} and {name!r} differ in case alone",
                remedy="declare one of them, or rename one with key=: Spark and SQLite take them for one column",
            )
    return tuple(names)


def parameters(*names: str) -> inspect.Signature:
    """The signature of a view's function that takes tables by these names."""
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
