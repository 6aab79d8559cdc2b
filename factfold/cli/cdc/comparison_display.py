"""A comparison with the source as it is watched, and as it looks in a terminal and in JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from cdc import ComparisonProgress, TableComparison
    from cdc.comparing.report import OnProgress

_QUIET_SECONDS: Final = 2.0  # a bar that comes and goes at once is no help
_LINE_SECONDS: Final = 10.0
_KINDS: Final = {
    "missing": "in the source alone",
    "extra": "in the state alone",
    "differing": "with other values",
    "changing": "changing too often to tell",
}


@contextmanager
def watched() -> Iterator[OnProgress]:
    """Show progress on stderr: a bar on a terminal after two seconds, else a line every ten."""
    if sys.stderr.isatty():
        with _bar() as on_progress:
            yield on_progress
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    begun, started = time.monotonic(), False
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("comparing", total=None)

    def on_progress(now: ComparisonProgress) -> None:
        nonlocal started
        if not started and time.monotonic() - begun > _QUIET_SECONDS:
            bar.start()
            started = True
        bar.update(task, description=f"{now.table}: {now.step}", completed=now.rows, total=now.total or None)

    try:
        yield on_progress
    finally:
        bar.stop()


def _lines() -> OnProgress:
    written_at = time.monotonic()

    def on_progress(now: ComparisonProgress) -> None:
        nonlocal written_at
        if time.monotonic() - written_at >= _LINE_SECONDS:
            written_at = time.monotonic()
            sys.stderr.write(f"{now.table}: {now.step}, {now.rows:,} of about {now.total:,} rows\n")
            sys.stderr.flush()

    return on_progress


def as_plain(comparison: TableComparison, *, show: int) -> dict[str, Any]:
    """A comparison as JSON has it: of each kind the number of keys, and some of them."""
    keys = {kind: _shown(comparison, kind, show) for kind in _KINDS}
    columns = [
        {"key": _named(comparison, key), "columns": list(names)} for key, names in comparison.differing_columns.items()
    ]
    return {
        "table": comparison.table,
        "state": comparison.state,
        "equal": comparison.equal,
        "source_rows": comparison.source_rows,
        "state_rows": comparison.state_rows,
        "chunks": comparison.chunks,
        **{kind: len(getattr(comparison, kind)) for kind in _KINDS},
        "keys": keys,
        "differing_columns": columns[:show],
        "faults": list(comparison.faults),
        "notes": list(comparison.notes),
        "not_compared": dict(comparison.not_compared),
        "repaired": comparison.repaired,
        "unrepaired": comparison.unrepaired,
    }


def tell(comparisons: Iterable[TableComparison], *, show: int) -> None:
    """Print a table of what was compared, and below it what differs, by key."""
    tables = list(comparisons)
    heading = ("table", "state", "rows", "in state", *_KINDS, "result")
    rows = [heading, *(_cells(one) for one in tables)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heading))]
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for one in tables:
        for line in _details(one, show):
            echo(f"  {line}")


def _cells(one: TableComparison) -> tuple[str, ...]:
    counts = [f"{len(getattr(one, kind)):,}" for kind in _KINDS]
    result = "DIFFERS" if not one.equal else "equal" if one.is_compared else "not compared"
    repaired = f", {one.repaired:,} repaired" if one.repaired else ""
    return (one.table, one.state, f"{one.source_rows:,}", f"{one.state_rows:,}", *counts, f"{result}{repaired}")


def _details(one: TableComparison, show: int) -> Iterator[str]:
    yield from (f"{one.table}: {fault}" for fault in one.faults)
    for kind, meaning in _KINDS.items():
        keys = getattr(one, kind)
        for key in keys[:show]:
            columns = ", ".join(one.differing_columns.get(key, ())) if kind == "differing" else ""
            named = ", ".join(f"{name}={value}" for name, value in _named(one, key).items())
            yield f"{one.table}: {named} {meaning}{columns and f': {columns}'}"
        if len(keys) > show:
            yield f"{one.table}: {len(keys) - show:,} more {meaning}"
    if one.unrepaired:
        yield f"{one.table}: not repaired: {one.unrepaired}"
    yield from (f"{one.table}: column {name} is not compared: {why}" for name, why in one.not_compared.items())
    yield from (f"{one.table}: note: {note}" for note in one.notes)


def _shown(comparison: TableComparison, kind: str, show: int) -> list[Mapping[str, str]]:
    return [_named(comparison, key) for key in getattr(comparison, kind)[:show]]


def _named(comparison: TableComparison, key: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(comparison.key, key, strict=True))
