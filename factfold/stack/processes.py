"""Processes the stack started: launched apart, recognized by id and start time, stopped one by one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from factfold.stack.accounts import Account, dropped_to
from factfold.stack.errors import ServerFailed, StackError


@dataclass(frozen=True)
class RecordedProcess:
    """A process id with its start in seconds since boot; the pair is never given out twice."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> RecordedProcess:
        """Record a process that is running now; raises psutil.NoSuchProcess."""
        return cls(pid, _seconds_after_boot(psutil.Process(pid)))

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs; None if it ended or its id now belongs to another one."""
        try:
            process = psutil.Process(self.pid)
            # An ended process keeps id and start time until its parent fetches its exit code. With threads
            # left it is still ending: its first thread has ended, its ports and files are still open.
            ended = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
            # The kernel counts in ticks of 10 ms.
            same = abs(_seconds_after_boot(process) - self.started) < 0.02
        except psutil.NoSuchProcess:
            return None
        return process if same and not ended else None


@dataclass(frozen=True)
class Launch:
    """How to start one server: command line, environment additions, folder, account (None: our own)."""

    argv: Sequence[str | Path]
    cwd: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None


# The shell leaves at once and the server becomes a child of init: it outlives us, Ctrl-C passes it by, and no
# exit code waits for us to fetch it. The server's output goes to the log, which is the shell's stderr.
_DETACH = ("/bin/sh", "-c", '"$@" >&2 & echo $!', "sh")


def launch(how: Launch) -> RecordedProcess:
    """Start a server in a session of its own; raises StackError when its program cannot be run."""
    program = Path(how.argv[0])
    if not os.access(program, os.X_OK):
        raise _unusable(program, "it is not there, or may not be run")
    with how.log.open("ab") as log:
        started = subprocess.run(  # noqa: S603
            [*_DETACH, *map(str, how.argv)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=how.cwd,
            env={**os.environ, **how.environment},
            start_new_session=True,
            **dropped_to(how.account),
        )
    try:
        return RecordedProcess.of(int(started.stdout))
    except psutil.NoSuchProcess:
        raise _unusable(program, f"it ended at once, see {how.log}") from None


def run_tool(command: Sequence[str | Path], failed: str, *, remedy: str, place: Path, **how: Any) -> None:
    """Run a server's tool to its end; raises ServerFailed with the tool's words if it fails."""
    ran = subprocess.run(command, check=False, capture_output=True, text=True, **how)  # noqa: S603
    if ran.returncode != 0:
        words = (ran.stdout + ran.stderr)[-2000:]
        raise ServerFailed(failed, remedy=remedy, place=str(place), log_tail=words)


def _unusable(program: Path, cause: str) -> StackError:
    return StackError(
        f"{program.name} cannot be started: {cause}",
        remedy="check this file. In the cache folder it may be removed, and is created again at the next start",
        place=str(program),
    )


def stop(recorded: RecordedProcess, *, with_signal: signal.Signals, within: float) -> bool:
    """Ask a process to end, kill it and its children after `within` seconds; True if it ended by itself."""
    process = recorded.find()
    if process is None:
        return True
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(with_signal)
    if wait_ended([recorded], within=within):
        return True
    kill(recorded)
    return False


def kill(recorded: RecordedProcess) -> None:
    """End a process and its children at once, as a power cut would, and wait until all have ended."""
    process = recorded.find()
    if process is None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [recorded, *_children(process)]
        for member in family:
            running = member.find()
            if running is not None:
                running.kill()
        wait_ended(family, within=30)


def wait_ended(family: Sequence[RecordedProcess], *, within: float) -> bool:
    """Wait until none of these processes runs; False when `within` seconds were not enough."""
    deadline = time.monotonic() + within
    while any(member.find() is not None for member in family):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def working_in(folder: Path) -> list[RecordedProcess]:
    """Return the processes, of this user or all if we are root, whose working folder is `folder`."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder.resolve()):
                processes.append(RecordedProcess.of(process.pid))
    return processes


def _children(process: psutil.Process) -> list[RecordedProcess]:
    children = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            children.append(RecordedProcess.of(child.pid))
    return children


def _seconds_after_boot(process: psutil.Process) -> float:
    # psutil adds the boot time, which moves when the clock is set; the difference does not.
    while True:
        boot = psutil.boot_time()
        created = psutil.Process(process.pid).create_time()
        if psutil.boot_time() == boot:
            return created - boot
