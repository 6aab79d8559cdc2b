"""The local stack, on real servers: the session's own, and a second one beside it, driven by the command."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest
import sqlalchemy

from factfold.cli.service.stack import _variables
from factfold.stack import LocalStack
from factfold.stack.errors import ArtifactError, ServerFailed
from factfold.stack.local import sweep
from factfold.stack.postgres import create_database, psql_command
from factfold.stack.processes import RecordedProcess, wait_ended
from factfold.stack.state import SERVERS, cache_folder
from tests.unit.test_named_commands import READ

Ran = subprocess.CompletedProcess[str]
pytestmark = pytest.mark.usefixtures("connect")


def command(*words: str, **environment: str) -> Ran:
    return subprocess.run(
        [sys.executable, "-m", "factfold", "stack", *words],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def second(stack: LocalStack) -> Iterator[LocalStack]:
    """A stack beside the session's, started by the command in another process."""
    name = f"tests-{os.getpid()}-second"
    try:
        ran = command("up", "--stack", name)
        assert ran.returncode == 0, ran.stderr
        yield LocalStack(name)
    finally:
        ran = command("down", "--stack", name, "--purge")
        assert ran.returncode == 0, ran.stderr


@pytest.fixture
def running(second: LocalStack) -> LocalStack:
    """The second stack, up again if a test before took it down."""
    second.up()
    return second


@pytest.fixture
def stopped(second: LocalStack) -> LocalStack:
    """The second stack, with its data, not running."""
    second.down()
    return second


def states(stack: LocalStack) -> dict[str, str]:
    return {status.server: status.state for status in stack.status()}


def recorded(stack: LocalStack) -> list[RecordedProcess]:
    return [stack.info.processes[server] for server in SERVERS]


def ask(stack: LocalStack, question: str, database: str = "postgres") -> Any:
    engine = sqlalchemy.create_engine(stack.info.postgres.url(database), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            result = connection.exec_driver_sql(question)
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def get(stack: LocalStack, path: str) -> Any:
    with urlopen(stack.info.connect_url + path, timeout=30) as response:
        return json.load(response)


UP = {"postgres": "up", "kafka": "up", "connect": "up"}
DOWN = {"postgres": "down", "kafka": "down", "connect": "down"}


def test_every_port_is_its_own_and_listens_on_this_machine_alone(stack):
    listening = [
        connection.laddr
        for process in recorded(stack)
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.port for address in listening} == {stack.info.ports[name] for name in (*SERVERS, "controller")}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_postgres_is_durable_and_decodes_its_log(stack):
    assert ask(stack, "SHOW wal_level") == "logical"
    assert ask(stack, "SHOW fsync") == "on"
    assert ask(stack, "SHOW server_version").startswith("18.")
    assert ask(stack, "SHOW max_slot_wal_keep_size") == "4GB"


def test_postgres_lets_nobody_in_without_the_password(stack):
    wrong = replace(stack.info.postgres, password="wrong")
    engine = sqlalchemy.create_engine(wrong.url())
    with pytest.raises(sqlalchemy.exc.OperationalError, match="password authentication failed"):
        engine.connect()


def test_postgres_never_runs_as_root(stack):
    server = psutil.Process(stack.info.processes["postgres"].pid)
    assert 0 not in server.uids()


def test_connect_has_debezium_and_tells_no_secret_outside_of_its_folder(stack):
    names = {plugin["class"] for plugin in get(stack, "/connector-plugins")}
    assert "io.debezium.connector.postgresql.PostgresConnector" in names
    written = (stack.folder / "connect.properties").read_text()
    assert f"config.providers.file.param.allowed.paths={stack.info.secrets_dir}\n" in written
    assert stat.S_IMODE(stack.info.secrets_dir.stat().st_mode) == 0o700


def test_a_database_is_created_once_under_any_name_and_a_failure_is_in_postgresqls_words(stack):
    name = 'a "shop" of mine'
    assert create_database(stack.info, name)
    assert not create_database(stack.info, name)
    engine = sqlalchemy.create_engine(stack.info.postgres.url(name))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select current_database()").scalar() == name
    engine.dispose()
    with pytest.raises(ServerFailed, match=r"did not create database 'x'.*authentication failed"):
        create_database(replace(stack.info, password="another"), "x")


def test_psql_opens_a_database_of_the_stack_and_takes_arguments(stack):
    create_database(stack.info, "psql_here")
    asked = ["--", "-tAc", "select current_database(), current_user"]
    assert command("psql", "--stack", stack.name, "psql_here", *asked).stdout == "psql_here|postgres\n"
    assert command("psql", *asked, FACTFOLD_STACK=stack.name).stdout == "postgres|postgres\n"


def test_without_psql_it_says_what_to_install(stack, tmp_path, monkeypatch):
    monkeypatch.setattr("factfold.stack.postgres.install_tree", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArtifactError) as refused:
        psql_command(stack.info, "shop", [])
    assert "postgresql-client" in refused.value.remedy


def test_the_variables_of_a_stack_are_those_that_commands_read(stack):
    found = _variables(stack.info, "shop")
    assert set(found) <= READ
    assert found["FACTFOLD_STORE_URL"] == found["FACTFOLD_VIEWS_URL"] == stack.info.postgres.url("shop")
    assert found["FACTFOLD_KAFKA__BOOTSTRAP_SERVERS"] == stack.info.bootstrap_servers
    assert "FACTFOLD_REGISTRY__URL" not in found
    registered = stack.info.with_process("registry", stack.info.processes["kafka"])
    ports = {**stack.info.ports, "registry": 8081}
    assert _variables(replace(registered, ports=ports), "shop")["FACTFOLD_REGISTRY__URL"] == (
        "http://127.0.0.1:8081/apis/ccompat/v7"
    )


def test_the_second_stack_shares_nothing_with_the_first(stack, running):
    assert states(stack) == states(running) == UP
    assert not set(stack.info.ports.values()) & set(running.info.ports.values())
    assert not {one.pid for one in recorded(stack)} & {one.pid for one in recorded(running)}


def test_up_again_starts_nothing_that_runs(running):
    before = recorded(running)
    ran = command("up", "--stack", running.name, "--json")
    assert json.loads(ran.stdout)["servers"]["kafka"]["pid"] == before[1].pid
    assert recorded(running) == before


def test_a_killed_server_is_down_and_up_starts_it_alone(running):
    postgres, kafka, _ = recorded(running)
    running.kill("connect")
    ran = command("status", "--stack", running.name, "--json")
    assert ran.returncode == 3
    assert {name: one["state"] for name, one in json.loads(ran.stdout)["servers"].items()} == UP | {"connect": "down"}
    running.up()
    assert recorded(running)[:2] == [postgres, kafka]
    assert states(running) == UP


def test_a_registry_is_started_where_it_is_asked_for_and_keeps_what_it_was_told(running):
    ran = command("up", "--stack", running.name, "--registry", "--json")
    assert json.loads(ran.stdout)["servers"]["registry"]["state"] == "up"
    subject = f"{running.info.registry_url}/subjects/order.placed/versions"
    told = json.dumps({"schema": '{"type": "record", "namespace": "order", "name": "placed", "fields": []}'}).encode()
    with urlopen(Request(subject, told, {"Content-Type": "application/json"}), timeout=30) as response:
        given = json.load(response)["id"]
    port = running.info.ports["registry"]
    running.stop("registry")
    assert states(running) == UP
    running.start("registry")
    assert running.info.ports["registry"] == port
    with urlopen(f"{subject}/1", timeout=30) as response:
        assert json.load(response)["id"] == given
    running.stop("registry")


@pytest.mark.faults
def test_after_a_power_cut_the_stack_comes_back_with_its_data_and_moves_off_a_port_that_was_taken(running):
    ask(running, "CREATE TABLE kept AS SELECT 42 AS answer")
    ports, gone = running.info.ports, recorded(running)
    for process in gone:
        os.kill(process.pid, signal.SIGKILL)
    assert wait_ended(gone, within=30)
    assert states(running) == DOWN
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", ports["kafka"]))
        holder.listen()
        running.up()
    assert states(running) == UP
    assert running.info.ports["kafka"] != ports["kafka"]
    assert running.info.ports["postgres"] == ports["postgres"]
    assert ask(running, "SELECT answer FROM kept") == 42


def test_down_stops_its_own_servers_and_leaves_the_other_stack_alone(stack, running):
    stopped = recorded(running)
    ran = command("down", "--stack", running.name)
    assert ran.stdout == "stopped postgres, kafka, connect\n"
    assert [one.find() for one in stopped] == [None, None, None]
    assert states(stack) == UP
    assert command("down", "--stack", running.name).stdout == "nothing was running\n"


def test_a_server_that_does_not_start_shows_the_end_of_its_log_and_nothing_is_left(stopped):
    settings = stopped.info.data("postgres") / "postgresql.conf"
    good = settings.read_text()
    settings.write_text(good + "no_such_setting = 1\n")
    try:
        ran = command("up", "--stack", stopped.name)
    finally:
        settings.write_text(good)
    assert ran.returncode == 1
    assert "error: postgres ended while it was starting" in ran.stderr
    assert 'unrecognized configuration parameter "no_such_setting"' in ran.stderr
    assert states(stopped) == DOWN


# Modules are imported first: the interpreter may lie in a home that the other account cannot read.
A_USER_WHO_DIES = """
import encodings.ascii, encodings.idna, os, signal, sys
from factfold.stack import local
from factfold.stack.versions import versions
versions()
uid, gid = int(sys.argv[1]), int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
stack = local.LocalStack("mine", ephemeral=True)
stack.up()
print([status.state for status in stack.status()], os.geteuid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_normal_user_can_start_a_stack_and_it_is_swept_away_when_its_owner_was_killed(stack, monkeypatch):
    """The user is the one who runs the tests, or `nobody` when that is root."""
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, account.pw_uid, account.pw_gid)
        Path(home, "cache").symlink_to(cache_folder())
        monkeypatch.setenv("FACTFOLD_HOME", home)
        ran = subprocess.run(
            [sys.executable, "-c", A_USER_WHO_DIES, str(account.pw_uid), str(account.pw_gid)],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ran.stdout == f"['up', 'up', 'up'] {account.pw_uid}\n", ran.stderr
        orphan = LocalStack("mine")
        left = recorded(orphan)
        assert states(orphan) == UP
        assert sweep() == ["mine"]
        assert [one.find() for one in left] == [None, None, None]
        assert not orphan.folder.exists()
    assert states(stack) == UP
