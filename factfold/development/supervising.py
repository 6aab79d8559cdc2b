"""Processes that run together: started, logged, started again after a failure, and ended together.

What a person sees of parts that run together: one table on a terminal, lines elsewhere, JSON for machines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from io import TextIOWrapper
from logging import makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from eventstore.restarts import HEALTHY_SECONDS, Restarts
from factfold.cli.show import escaped

if TYPE_CHECKING:
    from rich.table import Table

from factfold.development.parts import LeftOut, Part

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
            log.emit(makeLogRecord({"msg": f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}"}))
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


def _file_name(part: Part) -> str:
    """A name of a file: that of the part's kind and its first target."""
    target = part.name.partition(",")[0].replace(":", ".")
    return f"{part.kind}-{target}"


_COLOURS: Final = {
    State.STARTING: "yellow",
    State.RUNNING: "green",
    State.WAITING: "red",
    State.ENDED: "dim",
    State.FAILED: "bold red",
}
Look = Callable[[], Sequence[Running]]


class Lines:
    """Writes a line for each change of a part and each line of it, with the part's name before; or JSON."""

    def __init__(self, *, as_json: bool, has_screen: bool = False) -> None:
        self._as_json, self._has_screen = as_json, has_screen
        self._writing = threading.Lock()

    @property
    def on_state(self) -> OnState:
        """What to call with each change of a part."""
        return lambda one: self._tell(one, {"state": one.state.value, "restarts": one.restarts}, _said(one))

    @property
    def on_line(self) -> OnLine:
        """What to call with each line of a part."""
        return lambda one, line: self._tell(one, {"line": line}, line)

    def left_out(self, one: LeftOut) -> None:
        """Say that a definition is not run."""
        facts = {"part": one.name, "kind": one.kind, "state": "left out", "reason": one.reason}
        self._write(json.dumps(facts) if self._as_json else f"{one.name} | not run: {one.reason}")

    def prepared(self, store: str) -> None:
        """Say that a new event store was prepared."""
        said = f"prepared a new event store: {store}"
        self._write(json.dumps({"state": "prepared", "store": store}) if self._as_json else said)

    def _tell(self, one: Running, facts: dict[str, object], said: str) -> None:
        if not self._has_screen:
            named = {"part": one.part.name, "kind": one.part.kind, **facts}
            self._write(json.dumps(named) if self._as_json else f"{one.part.name} | {said}")

    def _write(self, line: str) -> None:
        with self._writing:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


@contextmanager
def screen(look: Look, left_out: Sequence[LeftOut]) -> Iterator[None]:
    """Show a table of the parts while the block runs, twice a second."""
    from rich.live import Live

    with Live(get_renderable=lambda: table_of(look(), left_out), refresh_per_second=2, screen=False):
        yield


def table_of(parts: Sequence[Running], left_out: Sequence[LeftOut]) -> Table:
    """Return the table: each part with its state, how long it has been so, restarts and its last line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True, title_justify="left", box=None, pad_edge=False)
    for heading, grows in (("part", 2), ("kind", 0), ("state", 0), ("for", 0), ("restarts", 0), ("last line", 3)):
        table.add_column(heading, ratio=grows or None, no_wrap=heading != "last line", overflow="ellipsis")
    for one in parts:
        state = Text(one.state.value, style=_COLOURS[one.state])
        age, restarts = _age(time.monotonic() - one.since), str(one.restarts or "")
        table.add_row(one.part.name, one.part.kind, state, age, restarts, Text(one.line))
    for other in left_out:
        table.add_row(other.name, other.kind, Text("not run", style="dim"), "", "", Text(other.reason, style="dim"))
    return table


def _said(one: Running) -> str:
    if one.state in (State.WAITING, State.FAILED):
        return f"{one.state.value} after failure {one.failures}; its log is {one.log}"
    return one.state.value


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
