"""Locks between processes, freed by the kernel when their holder ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from factfold.stack.errors import StackBusy


@contextmanager
def exclusive(path: Path, *, within: float = 600) -> Iterator[None]:
    """Hold a lock file; raises StackBusy when another process still holds it after `within` seconds."""
    deadline = time.monotonic() + within
    while (file := _try(path)) is None:
        if time.monotonic() > deadline:
            raise StackBusy(
                "another process is starting, stopping or fetching the same thing",
                remedy="wait for it to end, or end it, and run again",
                place=str(path),
            )
        time.sleep(0.05)
    with file:
        yield


def _try(path: Path) -> TextIOWrapper | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    # A stack that is removed takes its lock file along: a lock on a file without a name guards nothing.
    if _same_file(path, file):
        return file
    file.close()
    return None


def _same_file(path: Path, file: TextIOWrapper) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
