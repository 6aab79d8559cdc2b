"""Locks between processes, freed by the kernel when their holder ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from factfold.stack.errors import StackBusy, StackError


@contextmanager
def exclusive(path: Path, *, within: float = 600) -> Iterator[None]:
    """Hold a lock file; raises StackBusy when another process still has it after `within` seconds."""
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
    file = _open(path)
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


def _open(path: Path) -> TextIOWrapper:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a")
    except OSError as refused:
        raise StackError(
            f"the folder {path.parent} cannot be written: {refused.strerror}",
            remedy="make it writable for you, or set FACTFOLD_HOME to a folder that is",
            place=str(path),
        ) from refused


def _same_file(path: Path, file: TextIOWrapper) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
