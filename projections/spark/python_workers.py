"""How functions run in Spark's Python workers.

After every task, and before the next one, Spark's daemon has a worker look through all of its objects for garbage
(``gc.collect()`` in pyspark/daemon.py). What our functions import is 120,000 of them, which took a processor 60 ms a
task. It stays to the end anyway.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

Mapped = Callable[[Iterator[Any]], Iterator[Any]]


def settled(function: Mapped) -> Mapped:
    """The same function over a task's batches; what it imports is looked through no more."""

    @functools.wraps(function)
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        _settle(len(sys.modules))
        return function(batches)

    return run


@functools.cache
def _settle(modules: int) -> None:
    """Once for so many modules: done at every task, it would keep what tasks leave behind too."""
    gc.freeze()
