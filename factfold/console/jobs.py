"""Commands that an action starts in a process of their own: those that need Spark, or take long.

The command is the one that a person would type, so its output is what the person would see. Addresses go by the
environment, since the arguments of a process are visible to every user of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import structlog

from eventstore.errors import FactfoldError
from factfold.development.supervising import end

if TYPE_CHECKING:
    from factfold.console.parts import Places

_log = structlog.get_logger(__name__)

_REMEMBERED: Final = 20
_LINES: Final = 200
_END_SECONDS: Final = 30.0  # for so long an ended command may put away what it has open


@dataclass
class JobState:
    """A command: what it is about, its output, and its exit code, None while it runs."""

    about: str
    command: str
    id: str = field(default_factory=lambda: uuid4().hex)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime | None = None
    code: int | None = None
    output: tuple[str, ...] = ()

    @property
    def now(self) -> JobState:
        """The command as it is now, of which nothing changes any more."""
        return replace(self)


class Jobs:
    """Starts commands, one at a time for each thing, and remembers the last ones."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._jobs: deque[JobState] = deque(maxlen=_REMEMBERED)
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()

    def start(self, about: str, arguments: Sequence[str]) -> JobState:
        """Start `factfold` with arguments. Raises FactfoldError if a command about the same thing runs."""
        with self._lock:
            if about in self._running:
                raise FactfoldError(
                    f"a command for {about} still runs", remedy="wait until it ends", place=about, code="job-runs"
                )
            job = JobState(about, " ".join(("factfold", *arguments)))
            command = [sys.executable, "-m", "factfold", *arguments]
            process = subprocess.Popen(  # noqa: S603 - our own command; its arguments are no shell's
                command, env=os.environ | _variables(self._places), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
            self._running[about] = process
            self._jobs.appendleft(job)
        threading.Thread(target=self._follow, args=(job, process), name=f"job {about}", daemon=True).start()
        return job.now

    def about(self, about: str) -> tuple[JobState, ...]:
        """Return the commands about a thing, the newest first."""
        with self._lock:
            return tuple(job.now for job in self._jobs if job.about == about)

    def close(self) -> None:
        """End what runs: a command that was ended leaves the data as it was before, or goes on at its next start."""
        with self._lock:
            running = list(self._running.values())
        for process in running:
            process.terminate()
        for process in running:
            end(process, within=_END_SECONDS)

    def _follow(self, job: JobState, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout as lines:
            for line in lines:
                job.output = (*job.output, line.rstrip("\n"))[-_LINES:]
        code = process.wait()
        with self._lock:
            job.ended, job.code = datetime.now(UTC), code
            del self._running[job.about]
        _log.info("console.action_ended", id=job.id, about=job.about, command=job.command, code=code)


def _variables(places: Places) -> dict[str, str]:
    given = {name: value for name, value in asdict(places).items() if name != "kafka" and value is not None}
    return {f"FACTFOLD_{name}".upper(): str(value) for name, value in given.items()}
