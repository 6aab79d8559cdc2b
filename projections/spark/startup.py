"""Start Spark's JVM without the lines that it prints at every start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

# Spark asks for this module, and no option of the JVM turns the warning off.
_PRINTED_AT_EVERY_START: Final = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector\n"})
_LAST_LINES_SECONDS: Final = 1.0
_STDERR: Final = 2


@contextmanager
def quiet_start() -> Iterator[None]:
    """Filter the stderr of the JVM that is started in the block, for as long as that JVM lives.

    The JVM inherits the write end of a pipe. A thread copies every other line to this process's stderr.
    """
    shown = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    copying = Thread(target=_copy, args=(reading, shown), name="spark-stderr", daemon=True)
    copying.start()
    try:
        yield
    except BaseException:
        os.dup2(shown, _STDERR)
        copying.join(_LAST_LINES_SECONDS)  # a JVM that did not start says why before the error is raised
        raise
    os.dup2(shown, _STDERR)


def _copy(reading: int, shown: int) -> None:
    with open(reading, "rb") as lines, open(shown, "wb", buffering=0) as stderr:
        for line in lines:
            if line not in _PRINTED_AT_EVERY_START:
                stderr.write(line)
