"""Work in a thread of its own, as a service would have it in a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Background:
    """Runs ``work`` until the block ends. An error of ``work`` is raised in the thread that waits for it."""

    def __init__(self, work: Callable[[threading.Event], object], *, name: str) -> None:
        self._work = work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._failure: BaseException | None = None

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as error:  # handed to the thread that asks
            self._failure = error

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work for as long as the block lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        self.require_health()

    def require_health(self) -> None:
        """Raise what ended the work, if anything did."""
        if self._failure:
            raise self._failure


def wait_until(condition: Callable[[], bool], *, deadline: float, what: str) -> None:
    """Look again and again; TimeoutError names what did not happen."""
    until = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {deadline} s")
        time.sleep(0.02)
