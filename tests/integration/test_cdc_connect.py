"""The client against a live Connect worker, and its commands, with MirrorMaker's heartbeats. They need no database."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cdc import ConnectClient, set_connector_state
from cdc.connect.status import STOPPED
from cdc.operating.control import status_of
from tests.commands import factfold
from tests.connectors import HEARTBEATS, heartbeats, require_shipped_list
from tests.rows import each_row
from tests.unit.cdc.declared import checkpoint, heartbeat, mirror, postgres
from tests.waiting import wait_until

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@pytest.fixture
def config(stack: LocalStack) -> dict[str, str]:
    return heartbeats(stack.info.bootstrap_servers)


@pytest.fixture
def name(connect: ConnectClient, config: dict[str, str]) -> Iterator[str]:
    """A connector that was made PAUSED and runs."""
    name = f"hearts-{uuid.uuid4().hex[:8]}"
    connect.create(name, config, state="PAUSED")
    wait_until(lambda: (status := status_of(connect, name)) and status.state == "PAUSED", what="the pause")
    connect.resume(name)
    wait_until(lambda: connect.status(name).running, what="its task")
    yield name
    connect.delete(name)


def test_a_worker_says_who_it_is_and_what_it_can_load(connect: ConnectClient) -> None:
    assert connect.health().healthy
    assert connect.root().kafka_cluster_id
    assert HEARTBEATS in connect.plugins()


def test_a_connector_is_seen_whole_and_with_its_tasks(
    connect: ConnectClient, name: str, config: dict[str, str]
) -> None:
    info, status = connect.overview()[name]
    assert (info, status.running) == (connect.info(name), True)
    assert (info.kind, info.tasks, info.config) == ("source", (0,), {"name": name, **config})


def test_offsets_are_read_and_forgotten(connect: ConnectClient, name: str) -> None:
    wait_until(lambda: connect.offsets(name), what="an offset")
    connect.stop(name)
    wait_until(lambda: connect.status(name).stopped, what="the stop")
    connect.delete_offsets(name)
    assert connect.offsets(name) == ()


def test_a_restart_says_which_states_it_leads_to(connect: ConnectClient, name: str) -> None:
    assert connect.restart(name, only_failed=True) == connect.status(name)
    will_be = connect.restart(name)
    assert will_be is not None
    assert {will_be.state, *(task.state for task in will_be.tasks)} == {"RESTARTING"}
    wait_until(lambda: connect.status(name).running, what="its tasks again")


def test_commands_rest_stop_and_start_a_connector_and_forget_its_offsets(
    connect: ConnectClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)

    def run(*words: str) -> str:
        return factfold("cdc", *words, catch_exceptions=False).stdout

    assert run("pause", name) == f"{name}  PAUSED, task 0 PAUSED\n"
    assert run("resume", name) == f"{name}  RUNNING, task 0 RUNNING\n"
    wait_until(lambda: json.loads(run("offsets", "show", name, "--json")), what="an offset")
    assert "left alone" in run("restart", name, "--failed")
    assert run("stop", name) == f"{name}  STOPPED, no task\n"
    told = json.loads(run("offsets", "reset", name, "--yes", "--json"))
    assert told == {"name": name, "state": "STOPPED", "offsets": []}
    assert json.loads(run("offsets", "show", name, "--json")) == []
    assert json.loads(run("resume", name, "--json"))["state"] == "RUNNING"


def test_a_stop_right_after_a_change_of_configuration_is_followed(
    connect: ConnectClient, name: str, config: dict[str, str]
) -> None:
    for seconds in range(2, 5):
        connect.put_config(name, {**config, "emit.heartbeats.interval.seconds": str(seconds)})
        assert set_connector_state(connect, name, STOPPED).stopped
        connect.put_config(name, config)
        connect.resume(name)


@each_row("declare", [postgres, mirror, checkpoint, heartbeat])
def test_a_shipped_list_is_what_the_plug_in_publishes(connect: ConnectClient, declare: Any) -> None:
    require_shipped_list(connect, declare())


@each_row("declare", [mirror, checkpoint, heartbeat])
def test_a_worker_finds_nothing_wrong_with_a_declaration(connect: ConnectClient, declare: Any) -> None:
    declared = declare()
    assert connect.validate({"name": declared.name, **declared.config()}) == ()


def test_a_mirror_that_reads_uncommitted_records_cannot_be_exactly_once(connect: ConnectClient) -> None:
    config = {"name": "shop", **mirror().config(), "source.consumer.isolation.level": "read_uncommitted"}
    assert [problem.key for problem in connect.validate(config)] == ["exactly.once.support"]
