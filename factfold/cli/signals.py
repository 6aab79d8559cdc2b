"""Stop a running command by a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


def stop_on_signal(stop: threading.Event | None = None) -> threading.Event:
    """Return an event that SIGINT and SIGTERM set.

    Spark takes SIGINT for itself when it starts: called again, with the event, after that, this takes it back.
    """
    stopped = stop or threading.Event()
    for number in _NUMBERS:
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let both signals end the process at once while it does what goes on by itself when it is started again."""
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
