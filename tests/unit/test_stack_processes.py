"""Processes are recognized by id and start time, and only those are ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from factfold.stack import processes
from factfold.stack.errors import StackError
from factfold.stack.processes import Launch, RecordedProcess

SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); {SLEEPER}"

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start Python programs that print `ready`; end those that are left."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(program: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"{len(children)}.log"
        child = processes.launch(Launch([sys.executable, "-c", program], {}, tmp_path, log))
        children.append(child)
        deadline = time.monotonic() + 30
        while b"ready" not in log.read_bytes():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()


def test_a_running_process_is_found_by_id_and_start_time(start: Start) -> None:
    child = start(SLEEPER)
    recorded = RecordedProcess.of(child.pid)
    found = recorded.find()
    assert found is not None
    assert found.pid == child.pid


def test_a_process_that_got_a_recorded_id_later_is_left_alone(start: Start) -> None:
    child = start(SLEEPER)
    recorded = RecordedProcess.of(child.pid)
    another = replace(recorded, started=recorded.started - 1)
    assert another.find() is None
    assert processes.stop(another, with_signal=signal.SIGTERM, within=0)
    processes.kill(another)
    assert child.poll() is None


def test_a_process_that_ended_but_was_not_waited_for_is_gone(start: Start) -> None:
    child = start(SLEEPER)
    recorded = RecordedProcess.of(child.pid)
    child.kill()
    assert processes.wait_gone([recorded], within=30)
    assert recorded.find() is None


def test_stop_asks_and_does_not_kill_a_process_that_obeys(start: Start) -> None:
    child = start(SLEEPER)
    assert processes.stop(RecordedProcess.of(child.pid), with_signal=signal.SIGTERM, within=30)
    assert child.wait() == -signal.SIGTERM


def test_stop_kills_a_process_that_does_not_obey(start: Start) -> None:
    child = start(STUBBORN)
    assert not processes.stop(RecordedProcess.of(child.pid), with_signal=signal.SIGTERM, within=0.2)
    assert child.wait() == -signal.SIGKILL


def test_kill_takes_the_children_along(start: Start) -> None:
    import psutil

    child = start(PARENT)
    grandchildren = [RecordedProcess.of(one.pid) for one in psutil.Process(child.pid).children()]
    assert len(grandchildren) == 1
    processes.kill(RecordedProcess.of(child.pid))
    assert [one.find() for one in grandchildren] == [None]


def test_a_program_that_cannot_be_started_is_an_error_with_its_place(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(StackError, match="absent cannot be started: No such file or directory") as failure:
        processes.launch(Launch([absent], {}, tmp_path, tmp_path / "log"))
    assert str(absent) in str(failure.value.place)
