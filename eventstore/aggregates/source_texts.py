"""What a function or a class does, as a text that changes with it: its source, or its code where there is no source."""

from __future__ import annotations

import inspect
from functools import cache
from types import CodeType
from typing import Any

from eventstore.errors import DeclarationError


def source_of(declared: Any) -> str:
    """Return the text of a function or a class; DeclarationError for what has neither text nor code.

    It is the one of the first time: the file may change while the process runs what it has loaded. What has no file, as
    in `python -` or in a shell, is known by its code.
    """
    return _source_of(declared)


@cache
def _source_of(declared: Any) -> str:
    try:
        return inspect.getsource(declared)
    except (OSError, TypeError):
        codes = _codes_of(declared)
    if not codes:
        raise DeclarationError(
            f"{declared!r} has neither a source text nor code, and a change of it would not show",
            remedy="write it as a function",
        )
    return "\n".join(map(_compiled, codes))


def _codes_of(declared: Any) -> list[CodeType]:
    parts = vars(declared).values() if isinstance(declared, type) else [inspect.unwrap(declared)]
    return [code for part in parts if isinstance(code := getattr(part, "__code__", None), CodeType)]


def _compiled(code: CodeType) -> str:
    constants = (_compiled(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts)
    return "|".join([code.co_name, code.co_code.hex(), *code.co_names, *code.co_varnames, *constants])


def _constant(value: object) -> str:
    """A constant, in the same order in each process."""
    return str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
