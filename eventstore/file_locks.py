"""Locks between processes, in files; the kernel frees them when their holder ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from typing import IO, Final

from eventstore.errors import FactfoldError

_LOOK_SECONDS: Final = 0.02


@contextmanager
def locked(path: Path, *, within: float, held: Callable[[], FactfoldError]) -> Iterator[None]:
    """Hold the lock of a file, which is made; raises `held()` if another process still has it after `within` seconds.

    Raises OSError if the file cannot be opened, or its file system has no locks.
    """
    deadline = time.monotonic() + within
    while (file := _taken(path)) is None:
        if (left := deadline - time.monotonic()) <= 0:
            raise held()
        time.sleep(min(_LOOK_SECONDS, left))
    with file:
        yield


def is_locked(path: Path) -> bool:
    """Say whether any process holds the lock of a file, by a lock that others may share and that is freed at once."""
    try:
        with path.open("rb") as file:
            return not _lock(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _taken(path: Path) -> BufferedRandom | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+b")
    try:
        if _lock(file, fcntl.LOCK_EX) and _is_at(path, file):
            return file
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """A file may be removed while its lock is waited for: a lock on a file without a name guards nothing."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
