"""Work that may take long, as it is watched: a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# A bar that comes and goes within the blink of an eye tells nothing.
_QUICK_SECONDS: Final = 2.0
_LINE_SECONDS: Final = 10.0

Tell: TypeAlias = "Callable[[int, int], None]"
"""Called with what is done and the whole of it."""


@contextmanager
def shown_progress(what: str) -> Iterator[Tell]:
    """A bar on stderr once something takes longer than two seconds, in a log a line every ten seconds."""
    if sys.stderr.isatty():
        with late_bar(what) as tell:
            yield tell
    else:
        yield _lines(what)


@contextmanager
def late_bar(what: str) -> Iterator[Tell]:
    """A bar on stderr, once something takes longer than two seconds."""
    from rich.console import Console
    from rich.progress import Progress

    begun = _now()
    with ExitStack() as stack:
        bars: list[tuple[Progress, TaskID]] = []

        def tell(done: int, total: int) -> None:
            if _now() - begun < _QUICK_SECONDS:
                return
            if not bars:
                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
                bars.append((bar, bar.add_task(what)))
            for bar, task in bars:
                bar.update(task, completed=done, total=total, refresh=True)

        yield tell


def _lines(what: str) -> Tell:
    written_at = _now()

    def tell(done: int, total: int) -> None:
        nonlocal written_at
        if (now := _now()) - written_at > _LINE_SECONDS:
            written_at = now
            sys.stderr.write(f"{what}: {done:,} of {total:,}\n")

    return tell


def _now() -> float:
    return time.monotonic()
