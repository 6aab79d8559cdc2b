"""Processes the stack started: launched apart, recognized by id and start time, stopped one by one.

The account PostgreSQL runs under when we are root, which it refuses.

Waiting for a server to answer, with a deadline and its log at hand.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pwd
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from factfold.stack.errors import ServerFailed, StackError
from factfold.stack.ports import LOOPBACK

_CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """An existing unprivileged account."""

    name: str
    uid: int
    gid: int

    def own(self, path: Path) -> None:
        """Give one file or folder to this account."""
        os.chown(path, self.uid, self.gid)


def dropped_to(account: Account | None) -> dict[str, Any]:
    """Return the arguments that make `subprocess` run a program under an account alone, none for our own."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def server_account() -> Account | None:
    """Return the account to drop to: None for a normal user, `postgres` or `nobody` for root."""
    if os.geteuid() != 0:
        return None
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise StackError(
        "PostgreSQL refuses to run as root and there is no account to drop to",
        remedy="run as a normal user, or create one: `useradd --system postgres`",
    )


def require_reachable(folder: Path, *, by: Account | None) -> None:
    """Raise StackError if `by` cannot pass through one of the folders that lead to `folder`."""
    if by is None:
        return
    for parent in [*reversed(folder.parents), folder]:
        if parent.exists() and not _may_enter(parent, by):
            raise StackError(
                f"the account {by.name}, which runs PostgreSQL because root may not, cannot enter {parent}",
                remedy=f"set FACTFOLD_HOME to a folder it can reach, or `chmod o+x {parent}`",
                place=str(folder),
            )


def _may_enter(folder: Path, account: Account) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


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
    pid = int(started.stdout)
    try:
        return RecordedProcess.of(pid)
    except psutil.NoSuchProcess:  # it ended at once: the wait for its answer says so, with the end of its log
        return RecordedProcess(pid, started=-1.0)


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
