"""Processes are recognized by id and start time, and only those are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from factfold.stack import processes
from factfold.stack.errors import StackError
from factfold.stack.processes import Launch, RecordedProcess
from tests.waiting import wait_until

SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); {SLEEPER}"

Start = Callable[[str], RecordedProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start Python programs that print `ready`; end those that are left."""
    started: list[RecordedProcess] = []

    def begin(program: str) -> RecordedProcess:
        log = tmp_path / f"{len(started)}.log"
        started.append(processes.launch(Launch([sys.executable, "-c", program], tmp_path, log)))
        wait_until(lambda: b"ready" in log.read_bytes(), what=log.read_text)
        return started[-1]

    yield begin
    for process in started:
        processes.kill(process)


def test_a_started_process_is_found_by_id_and_start_time(start: Start) -> None:
    recorded = start(SLEEPER)
    found = recorded.find()
    assert found is not None
    assert found.pid == recorded.pid


def test_a_started_process_is_no_child_of_ours_and_leads_no_terminal(start: Start) -> None:
    recorded = start(SLEEPER)
    assert recorded.pid not in {child.pid for child in psutil.Process().children(recursive=True)}
    assert os.getsid(recorded.pid) != os.getsid(0)


def test_a_process_that_got_a_recorded_id_later_is_left_alone(start: Start) -> None:
    recorded = start(SLEEPER)
    another = replace(recorded, started=recorded.started - 1)
    assert another.find() is None
    assert processes.stop(another, with_signal=signal.SIGTERM, within=0)
    processes.kill(another)
    assert recorded.find() is not None


def test_a_child_that_ended_but_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER]) as child:
        recorded = RecordedProcess.of(child.pid)
        child.kill()
        assert processes.wait_ended([recorded], within=30)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE


def test_stop_asks_and_does_not_kill_a_process_that_obeys(start: Start) -> None:
    recorded = start(SLEEPER)
    assert processes.stop(recorded, with_signal=signal.SIGTERM, within=30)
    assert recorded.find() is None


def test_stop_kills_a_process_that_does_not_obey(start: Start) -> None:
    recorded = start(STUBBORN)
    assert not processes.stop(recorded, with_signal=signal.SIGTERM, within=0.2)
    assert recorded.find() is None


def test_kill_takes_the_children_along(start: Start) -> None:
    recorded = start(PARENT)
    grandchildren = [RecordedProcess.of(one.pid) for one in psutil.Process(recorded.pid).children()]
    assert len(grandchildren) == 1
    processes.kill(recorded)
    assert [one.find() for one in grandchildren] == [None]


def test_the_processes_that_work_in_a_folder_are_found(start: Start, tmp_path: Path) -> None:
    recorded = start(SLEEPER)
    assert processes.working_in(tmp_path) == [recorded]
    assert processes.working_in(tmp_path / "absent") == []


def test_what_a_process_prints_goes_to_its_log(start: Start, tmp_path: Path) -> None:
    start("import sys; print('to stderr', file=sys.stderr); " + SLEEPER)
    assert (tmp_path / "0.log").read_text() == "to stderr\nready\n"


def test_a_program_that_cannot_be_started_is_an_error_with_its_place(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(StackError, match="absent cannot be started: it is not there") as failure:
        processes.launch(Launch([absent], tmp_path, tmp_path / "log"))
    assert failure.value.place == str(absent)
