"""Waiting for a server to answer, with a deadline and its log at hand."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from factfold.stack.errors import ServerFailed
from factfold.stack.ports import LOOPBACK
from factfold.stack.processes import RecordedProcess

_TAIL_LINES = 20


@dataclass(frozen=True)
class Wait:
    """What to wait for: a server's answer while its process lives, for at most `within` seconds."""

    server: str
    process: RecordedProcess
    answers: Callable[[], bool]
    log: Path
    within: float


def until_answering(wait: Wait, *, given_up: Callable[[], bool]) -> None:
    """Return once the server answers; raises ServerFailed if it ends, is too slow, or `given_up()`."""
    deadline = time.monotonic() + wait.within
    while not wait.answers():
        if wait.process.find() is None:
            raise _failure(wait, f"{wait.server} ended while it was starting")
        if time.monotonic() > deadline:
            raise _failure(wait, f"{wait.server} did not answer within {wait.within:.0f} s")
        if given_up():
            raise _failure(wait, f"starting {wait.server} was given up")
        time.sleep(0.1)


def says_it_is_well(port: int, path: str) -> bool:
    """Ask a server of this machine for its health by HTTP; anything but 200 is no."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def tail(log: Path, *, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log; empty when there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        # No line of interest is longer than 400 bytes on average.
        file.seek(max(0, log.stat().st_size - lines * 400))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])


def _failure(wait: Wait, message: str) -> ServerFailed:
    return ServerFailed(
        message,
        remedy=f"read the end of its log: `factfold stack logs {wait.server}`",
        place=str(wait.log),
        log_tail=tail(wait.log),
    )
