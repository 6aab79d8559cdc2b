"""Every endpoint of a live Connect worker, with a connector that needs no database: MirrorMaker's heartbeats."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc import ConnectClient
from cdc.errors import ConnectRejected, UnknownConnector
from cdc.operating.watch import status_of
from tests.connectors import HEARTBEATS, heartbeats
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
    connectors, every = connect.plugins(), connect.plugins(connectors_only=False)
    assert HEARTBEATS in {plugin.class_name for plugin in connectors}
    assert {plugin.kind for plugin in connectors} <= {"source", "sink"}
    assert {"converter", "transformation", "predicate"} <= {plugin.kind for plugin in every}


def test_a_plugin_says_which_settings_it_reads(connect: ConnectClient) -> None:
    keys = {key.name: key for key in connect.plugin_keys(HEARTBEATS)}
    assert (keys["emit.heartbeats.enabled"].type, keys["emit.heartbeats.enabled"].default) == ("BOOLEAN", "true")
    assert keys["connector.class"].required
    with pytest.raises(ConnectRejected):
        connect.plugin_keys("no.such.Plugin")


def test_a_connector_is_seen_whole_and_with_its_tasks(
    connect: ConnectClient, name: str, config: dict[str, str]
) -> None:
    info, status = connect.overview()[name]
    assert (info, status.running) == (connect.info(name), True)
    assert (info.kind, info.tasks, info.config) == ("source", (0,), {"name": name, **config})
    (task,) = connect.tasks(name)
    assert (task.id, task.config["task.class"].rpartition(".")[2]) == (0, "MirrorHeartbeatTask")
    assert connect.task_status(name, 0).state == "RUNNING"
    connect.restart_task(name, 0)
    wait_until(lambda: connect.status(name).running, what="its task again")
    for ask in (connect.task_status, connect.restart_task):
        with pytest.raises(UnknownConnector):
            ask(name, 7)


def test_some_settings_are_changed_and_others_taken_away(connect: ConnectClient, name: str) -> None:
    patched = connect.patch_config(
        name, {"emit.heartbeats.interval.seconds": "2", "heartbeats.topic.replication.factor": None}
    )
    assert patched["emit.heartbeats.interval.seconds"] == "2"
    assert "heartbeats.topic.replication.factor" not in patched
    assert connect.config(name) == patched


def test_topics_that_were_used_are_told_and_forgotten(connect: ConnectClient, name: str) -> None:
    wait_until(lambda: connect.topics(name) == ("heartbeats",), what="a heartbeat")
    connect.stop(name)
    wait_until(lambda: connect.status(name).stopped, what="the stop")
    connect.reset_topics(name)
    wait_until(lambda: connect.topics(name) == (), what="the topics to be forgotten")


def test_offsets_are_read_set_and_forgotten(connect: ConnectClient, name: str) -> None:
    wait_until(lambda: connect.offsets(name), what="an offset")
    connect.stop(name)
    wait_until(lambda: connect.status(name).stopped, what="the stop")
    (offset,) = connect.offsets(name)
    elsewhere = replace(offset, partition={**offset.partition, "targetClusterAlias": "elsewhere"})
    assert "altered" in connect.alter_offsets(name, [elsewhere])
    assert set(map(str, connect.offsets(name))) == {str(offset), str(elsewhere)}
    with pytest.raises(ConnectRejected):
        connect.alter_offsets(name, [replace(offset, partition={"nobody": "knows it"})])
    connect.delete_offsets(name)
    assert connect.offsets(name) == ()


def test_a_configuration_is_judged_before_it_is_kept(connect: ConnectClient, config: dict[str, str]) -> None:
    assert connect.validate({"name": "x", **config}) == ()
    (problem,) = connect.validate({"name": "x", **config, "emit.heartbeats.interval.seconds": "soon"})
    assert problem.key == "emit.heartbeats.interval.seconds"


def test_the_workers_loggers_are_read_and_set(connect: ConnectClient) -> None:
    name = "org.apache.kafka.connect.mirror"
    before = connect.logger("root").level
    try:
        assert name in connect.set_logger(name, "DEBUG")
        assert (connect.logger(name).level, connect.logger(name).modified is None) == ("DEBUG", False)
        assert name in {logger.name for logger in connect.loggers()}
        assert connect.set_logger(name, "WARN", everywhere=True) == ()
        wait_until(lambda: connect.logger(name).level == "WARN", what="the level")
    finally:
        connect.set_logger(name, before)
    with pytest.raises(ConnectRejected):
        connect.set_logger(name, "LOUD")


def test_states_are_asked_for(connect: ConnectClient, name: str) -> None:
    connect.pause(name)
    wait_until(lambda: connect.status(name).state == "PAUSED", what="the pause")
    connect.resume(name)
    wait_until(lambda: connect.status(name).running, what="its tasks")
    assert connect.restart(name, only_failed=True) == connect.status(name)
    will_be = connect.restart(name)
    assert will_be is not None
    assert {will_be.state, *(task.state for task in will_be.tasks)} == {"RESTARTING"}
    wait_until(lambda: connect.status(name).running, what="its tasks again")
