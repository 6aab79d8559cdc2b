"""A signal asks a command that runs on to finish what it has at hand."""

from __future__ import annotations

import signal
import threading


def stop_on_signal() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
