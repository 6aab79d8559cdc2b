"""A table of rows as one test. Its failure lists each wrong row with the reason.

A test of pytest costs more than a quick row: each process collects it, sets it up and reports it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], ids: Callable[[Any], Any] | Iterable[str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a test its rows as `pytest.mark.parametrize` does, but in one test: all rows share the fixtures."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [tuple(row) if len(columns) > 1 else (row,) for row in rows]
    assert table, "a table without rows proves nothing"
    names_of_rows = ids if ids is None or callable(ids) else list(ids)
    assert names_of_rows is None or callable(names_of_rows) or len(names_of_rows) == len(table), "each row has one name"

    def decorate(check: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            errors = {
                row: _error(check, fixtures | dict(zip(columns, table[row], strict=True))) for row in range(len(table))
            }
            wrong = {row: error for row, error in errors.items() if error is not None}
            reasons = [
                f"{_name(row, table[row], names_of_rows)}: {_reason(check, error)}" for row, error in wrong.items()
            ]
            if wrong:
                head = f"{len(wrong)} of {len(table)} rows are wrong:"
                raise AssertionError("\n".join([head, *reasons])) from next(iter(wrong.values()))

        signature = inspect.signature(check)
        others = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return test

    return decorate


def _error(check: Callable[..., Any], arguments: dict[str, Any]) -> BaseException | None:
    try:
        if inspect.iscoroutinefunction(check):
            asyncio.run(check(**arguments))
        else:
            check(**arguments)
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
        return error
    return None


def _name(number: int, row: tuple[Any, ...], ids: Callable[[Any], Any] | Sequence[str] | None) -> str:
    if ids is None or callable(ids):
        return ", ".join(str((ids or repr)(value)) for value in row)
    return ids[number]


def _reason(check: Callable[..., Any], error: BaseException) -> str:
    """The line of the test, and the error with its further lines indented."""
    file = inspect.unwrap(check).__code__.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    text = "".join(traceback.format_exception_only(error)).rstrip().replace("\n", "\n    ")
    return f"line {lines[0]}: {text}" if lines else text
