"""A rebuild as it is watched: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from projections.lifecycle.progress import OnProgress, RebuildProgress

_LINE_SECONDS: Final = 10.0


@contextmanager
def shown(group: str) -> Iterator[OnProgress]:
    """Show the progress of a group's rebuild on stderr while the block runs."""
    if sys.stderr.isatty():
        with _bar(group) as on_progress:
            yield on_progress
    else:
        yield _lines(group)


@contextmanager
def _bar(group: str) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    left = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), left, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{group}: starting", total=None, rate="")

        def on_progress(now: RebuildProgress) -> None:
            description = f"{group}: {now.step}"
            bar.update(
                task,
                description=description,
                completed=now.records,
                total=now.total or None,
                rate=_rate(now).removeprefix(", "),
            )

        yield on_progress


def _lines(group: str) -> OnProgress:
    """A line for every step, and one every ten seconds within it."""
    step, written_at = "", 0.0

    def on_progress(now: RebuildProgress) -> None:
        nonlocal step, written_at
        if now.step != step or time.monotonic() - written_at >= _LINE_SECONDS:
            step, written_at = now.step, time.monotonic()
            sys.stderr.write(f"{group}: {now.step}, {now.records:,} of {now.total:,} records{_rate(now)}\n")
            sys.stderr.flush()

    return on_progress


def _rate(now: RebuildProgress) -> str:
    """Records a second and the time left, while there are records to read."""
    if now.seconds_left is None or now.records >= now.total:
        return ""
    return f", {now.records_per_second:,.0f} records/s, {now.seconds_left:,.0f} s left"
