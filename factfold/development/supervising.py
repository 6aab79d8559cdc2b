"""Processes that run together: started, logged, started again after a failure, and ended together."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from io import TextIOWrapper
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Event
from typing import Any, Final

from eventstore.restarts import HEALTHY_SECONDS, Restarts
from factfold.cli.show import escaped
from factfold.development.parts import Part

LOG_BYTES: Final = 2_000_000
_FIRST_WAIT: Final = 0.5
_END_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1
# How the commands say that they have opened what they need.
_READY: Final = ("following", "routing", "running")


class State(StrEnum):
    """What a part does: ``waiting`` is between a failure and the next start, ``failed`` is given up."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"
    FAILED = "failed"


@dataclass
class Running:
    """A part as it runs: its state since when, how often it was started again, its last line and its log."""

    part: Part
    log: Path
    state: State = State.STARTING
    since: float = field(default_factory=time.monotonic)
    restarts: int = 0
    failures: int = 0
    line: str = ""


OnState = Callable[[Running], None]
OnLine = Callable[[Running, str], None]


class _Log(RotatingFileHandler):
    """A log that only its owner reads: a part may print what no other account of the machine is to see."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()


class Supervisor:
    """Runs parts side by side; ``limit`` bounds the failures in a row after which one is given up.

    ``on_state`` is called with each change of a part's state, ``on_line`` with each line that it prints.
    """

    def __init__(self, parts: Sequence[Part], logs: Path, *, limit: int, on_state: OnState, on_line: OnLine) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.running = [Running(part, logs / f"{_file_name(part)}.log") for part in parts]
        self._policy = Restarts(limit=limit, first=_FIRST_WAIT)
        self._on_state, self._on_line = on_state, on_line

    @property
    def failed(self) -> list[Running]:
        """The parts that were given up."""
        return [one for one in self.running if one.state is State.FAILED]

    def run(self, *, stop: Event) -> None:
        """Run the parts until ``stop`` is set, or until the last of them has ended."""
        with ThreadPoolExecutor(max_workers=max(1, len(self.running))) as threads:
            for done in [threads.submit(self._keep, one, stop) for one in self.running]:
                done.result()

    def _keep(self, one: Running, stop: Event) -> None:
        """Start a part, and again after each failure, until it ends by itself or is given up."""
        log = _Log(one.log, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        try:
            while not stop.is_set():
                begun = time.monotonic()
                self._change(one, State.STARTING)
                code = self._run_once(one, log, stop)
                if stop.is_set() or code == 0:
                    break
                one.failures = 1 if time.monotonic() - begun > HEALTHY_SECONDS else one.failures + 1
                if one.failures > self._policy.limit:
                    self._change(one, State.FAILED)
                    return
                self._change(one, State.WAITING)
                stop.wait(self._policy.delay(one.failures))
                one.restarts += 1
            self._change(one, State.ENDED)
        finally:
            log.close()

    def _run_once(self, one: Running, log: RotatingFileHandler, stop: Event) -> int:
        environment = {**os.environ, **one.part.variables, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(  # noqa: S603 - our own commands
            one.part.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # the terminal's signal is for the supervisor, which ends the parts
        )
        with process, ThreadPoolExecutor(max_workers=1) as reading:
            lines = reading.submit(self._read, one, process, log)
            while process.poll() is None:
                if stop.wait(_LOOK_SECONDS):
                    end(process, within=_END_SECONDS)
            lines.result()
        return process.returncode

    def _read(self, one: Running, process: subprocess.Popen[str], log: RotatingFileHandler) -> None:
        for line in _lines(process):
            log.emit(_record(line))
            one.line = _shown(one.line, line)
            if one.state is State.STARTING and line.startswith(_READY):
                self._change(one, State.RUNNING)
            self._on_line(one, line)

    def _change(self, one: Running, state: State) -> None:
        one.state, one.since = state, time.monotonic()
        self._on_state(one)


def end(process: subprocess.Popen[Any], *, within: float) -> None:
    """Ask a process to end, and kill it if it runs on after so many seconds."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    for line in process.stdout or ():
        if text := escaped(line.rstrip()):
            yield text


def _shown(before: str, line: str) -> str:
    """Return the line to show of a part: of an error its cause with its remedy, and not the place below them."""
    if before.startswith("error: ") and line.startswith("  "):
        return f"{before};{line[1:]}" if line.startswith("  remedy: ") else before
    return line


def _record(line: str) -> LogRecord:
    return makeLogRecord({"msg": f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}"})


def _file_name(part: Part) -> str:
    """A name of a file: that of the part's kind and its first target."""
    target = part.name.partition(",")[0].replace(":", ".")
    return f"{part.kind}-{target}"
