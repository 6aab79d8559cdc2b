"""The state of a local stack, and its processes."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from factfold.stack import LocalStack, processes, state
from factfold.stack.errors import StackBusy, StackError, StackNotUp
from factfold.stack.kafka import properties_text
from factfold.stack.ports import RANGE, free_ports, require_free
from factfold.stack.processes import Account, Launch, RecordedProcess, require_reachable, tail
from factfold.stack.state import StackInfo, exclusive, load, save, state_file
from tests.errors import raises
from tests.waiting import wait_until

PORTS = {"postgres": 20001, "kafka": 20002, "connect": 20003, "controller": 20004}


def information(folder: Path) -> StackInfo:
    process = RecordedProcess(pid=4711, started=12.5)
    return StackInfo("default", folder, PORTS, "s3/cr@t", {"kafka": process}, owner=None)


def test_the_state_file_gives_back_what_was_saved_to_its_owner_alone(tmp_path: Path) -> None:
    save(information(tmp_path))
    assert load(tmp_path) == information(tmp_path)
    assert stat.S_IMODE(state_file(tmp_path).stat().st_mode) == 0o600


def test_the_address_of_a_registry_that_was_not_started_is_an_error_that_says_how_to_start_it(tmp_path: Path) -> None:
    assert replace(information(tmp_path), ports=PORTS | {"registry": 20005}).registry_url.startswith(
        "http://127.0.0.1:20005"
    )
    with pytest.raises(StackNotUp, match="factfold stack up --registry"):
        _ = information(tmp_path).registry_url


def test_the_password_is_not_shown_by_accident_and_escaped_in_a_url(tmp_path: Path) -> None:
    info = information(tmp_path)
    assert info.password not in f"{info!r} {info.postgres!r} {info.public()!r}"
    assert info.postgres.url("shop") == "postgresql+psycopg://postgres:s3%2Fcr%40t@127.0.0.1:20001/shop"


@pytest.mark.parametrize("text", ["", "{", '{"name": "x"}', "[]"])
def test_a_damaged_state_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    state_file(tmp_path).write_text(text)
    with pytest.raises(StackError, match="the state file is damaged") as failure:
        load(tmp_path)
    assert failure.value.place == str(state_file(tmp_path))


def test_a_stack_that_was_never_started_is_an_error_that_says_how_to_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTFOLD_HOME", str(tmp_path))
    with pytest.raises(StackNotUp) as failure:
        LocalStack("absent").status()
    assert failure.value.remedy == "factfold stack up --stack absent"
    assert LocalStack("absent").down() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../other", "A", "x" * 41, "a b"])
def test_a_name_that_is_no_plain_folder_name_is_refused(name: str) -> None:
    with pytest.raises(StackError, match="is no name for a stack"):
        LocalStack(name)


def test_an_unknown_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTFOLD_HOME", str(tmp_path))
    with pytest.raises(StackError, match="'zookeeper' is no server of the stack"):
        LocalStack().stop("zookeeper")


def test_one_variable_moves_everything_out_of_the_users_standard_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTFOLD_HOME", str(tmp_path))
    assert state.cache_folder() == tmp_path / "cache"
    assert state.stacks_folder() == tmp_path / "state" / "stacks"
    monkeypatch.delenv("FACTFOLD_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert state.cache_folder() == tmp_path / "c" / "factfold"
    assert state.state_folder() == tmp_path / "s" / "factfold"


def test_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(str(number) for number in range(20))
    assert len(set(ports.values())) == 20
    assert all(port in RANGE for port in ports.values())


def test_a_taken_port_is_refused_with_its_holder_and_one_outside_of_all_ports() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with raises(
            StackError, code="port-refused", match=rf"port {port}, requested by kafka, is taken by .*{os.getpid()}"
        ):
            require_free(port, server="kafka")
    with raises(StackError, code="port-refused", match="port 70000, requested by kafka, is refused"):
        require_free(70000, server="kafka")


def test_a_lock_is_taken_when_its_holder_lets_go(tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive(tmp_path / "lock"):
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    done.set()
    with exclusive(tmp_path / "lock", within=30):
        pass
    holder.join()


def test_a_lock_that_is_held_makes_others_fail_until_its_file_is_removed_and_made_anew(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock"):
        with pytest.raises(StackBusy), exclusive(tmp_path / "lock", within=0.1):
            pass
        (tmp_path / "lock").unlink()
        with exclusive(tmp_path / "lock", within=0.1):
            assert (tmp_path / "lock").exists()


def test_a_folder_that_cannot_be_written_is_an_error_that_says_how_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="cannot be written") as failure, exclusive(tmp_path / "file" / "lock"):
        pass
    assert "FACTFOLD_HOME" in failure.value.remedy


def test_a_folder_the_servers_account_cannot_enter_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stranger = Account("nobody", uid=os.getuid() + 4242, gid=os.getgid() + 4242)
    tmp_path.chmod(0o755)
    with raises(StackError, match=r"the account nobody, .* cannot enter", remedy="FACTFOLD_HOME"):
        require_reachable(closed / "data", by=stranger)
    require_reachable(closed, by=None)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert tail(log, lines=2) == "line 998\nline 999"
    assert tail(tmp_path / "absent.log") == ""


def test_java_properties_survive_backslashes_and_signs_outside_ascii() -> None:
    text = properties_text({"log.dirs": "/home/Zoë\\x", "tree": "🌲"})
    assert text == "log.dirs=/home/Zo\\u00eb\\\\x\ntree=\\ud83c\\udf32\n"


def test_an_optional_server_is_one_of_the_stacks_while_it_is_started(tmp_path: Path) -> None:
    without = information(tmp_path)
    assert without.servers == ("postgres", "kafka", "connect")
    assert "registry_url" not in without.public()
    started = replace(without, ports={**PORTS, "registry": 20005}).with_process("registry", RecordedProcess(1, 2.0))
    save(started)
    assert load(tmp_path) == started
    assert started.servers[-1] == "registry"
    assert started.public()["registry_url"] == "http://127.0.0.1:20005/apis/ccompat/v7"


# ---- processes are recognized by id and start time, and only those are ended


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


def test_a_started_process_is_no_child_of_ours_and_found_by_the_folder_it_works_in(
    start: Start, tmp_path: Path
) -> None:
    recorded = start(SLEEPER)
    assert processes.working_in(tmp_path) == [recorded]
    assert processes.working_in(tmp_path / "absent") == []
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


@pytest.mark.parametrize(("program", "within", "obeys"), [(SLEEPER, 30, True), (STUBBORN, 0.2, False)])
def test_stop_asks_and_kills_only_a_process_that_does_not_obey(
    start: Start, program: str, within: float, obeys: bool
) -> None:
    recorded = start(program)
    assert processes.stop(recorded, with_signal=signal.SIGTERM, within=within) == obeys
    assert recorded.find() is None


def test_kill_takes_the_children_along(start: Start) -> None:
    recorded = start(PARENT)
    grandchildren = [RecordedProcess.of(one.pid) for one in psutil.Process(recorded.pid).children()]
    assert len(grandchildren) == 1
    processes.kill(recorded)
    assert [one.find() for one in grandchildren] == [None]


def test_what_a_process_prints_goes_to_its_log(start: Start, tmp_path: Path) -> None:
    start("import sys; print('to stderr', file=sys.stderr); " + SLEEPER)
    assert (tmp_path / "0.log").read_text() == "to stderr\nready\n"


def test_a_program_that_cannot_be_started_is_an_error_with_its_place(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(StackError, match="absent cannot be started: it is not there") as failure:
        processes.launch(Launch([absent], tmp_path, tmp_path / "log"))
    assert failure.value.place == str(absent)
