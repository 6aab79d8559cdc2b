"""`factfold cdc` on a live worker: what would be done, rest and stop and go on, how far a connector has come."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import cdc
from cdc import ConnectClient
from cdc.connect.status import STOPPED
from cdc.errors import UnknownConnector
from cdc.operating.planning import MASK
from factfold.cli.cdc import apply as command_line
from tests.connectors import heartbeats
from tests.waiting import wait_until

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@dataclass
class Hearts:
    """A connector by its configuration."""

    has_heartbeats = True

    name: str
    settings: dict[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, str]:
        return self.settings

    def check_source(self, engine: Any) -> None:
        """There is none."""


@pytest.fixture
def hearts(connect: ConnectClient, stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hearts]:
    declared = Hearts(f"hearts-{uuid.uuid4().hex[:8]}", heartbeats(stack.info.bootstrap_servers))
    declarations = type(sys)("hearts_here")
    declarations.hearts = declared  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hearts_here", declarations)
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)
    yield declared
    cdc.delete(connect, declared.name, forget=True)


@pytest.fixture
def run() -> Callable[..., Any]:
    return lambda *words: CliRunner().invoke(command_line.app, words, catch_exceptions=False)


def test_a_plan_tells_what_apply_would_do_and_no_secret(
    connect: ConnectClient, hearts: Hearts, run: Callable[..., Any]
) -> None:
    made = run("plan", "hearts_here:hearts")
    assert (made.exit_code, made.stdout.splitlines()[0]) == (2, f"{hearts.name}  create")
    connect.create(hearts.name, {**hearts.config(), "header.password": "sentinel-old"})
    wait_until(lambda: any(one.name == hearts.name for one in cdc.statuses(connect)), what="its status")
    hearts.settings = {**hearts.settings, "header.password": "sentinel-new", "emit.heartbeats.interval.seconds": "9"}
    (changed,) = [one for one in cdc.plan(connect, [hearts]) if one.name == hearts.name]
    assert (changed.action, [(c.key, c.running, c.declared) for c in changed.changes]) == (
        "change",
        [("emit.heartbeats.interval.seconds", "1", "9"), ("header.password", MASK, MASK)],
    )
    told = run("plan", "hearts_here:hearts", "--json")
    assert told.exit_code == 2
    assert "sentinel" not in told.stdout
    connect.put_config(hearts.name, {"name": hearts.name, **hearts.config()})
    (kept,) = [one for one in cdc.plan(connect, [hearts]) if one.name == hearts.name]
    assert (kept.action, kept.changes) == ("keep", ())
    assert hearts.name in {one.name for one in cdc.plan(connect, []) if one.action == "undeclared"}


def test_a_connector_rests_stops_goes_on_and_begins_anew(
    connect: ConnectClient, hearts: Hearts, run: Callable[..., Any]
) -> None:
    connect.create(hearts.name, hearts.config())
    wait_until(lambda: any(one.name == hearts.name and one.running for one in cdc.statuses(connect)), what="its task")
    assert run("pause", hearts.name).stdout == f"{hearts.name}  PAUSED, task 0 PAUSED\n"
    assert run("resume", hearts.name).stdout == f"{hearts.name}  RUNNING, task 0 RUNNING\n"
    wait_until(lambda: json.loads(run("offsets", "show", hearts.name, "--json").stdout), what="an offset")
    assert "left alone" in run("restart", hearts.name, "--failed").stdout
    assert run("stop", hearts.name).stdout == f"{hearts.name}  STOPPED, no task\n"
    assert run("plan", "hearts_here:hearts").stdout.startswith(f"{hearts.name}  resume  STOPPED, no task\n")
    told = json.loads(run("offsets", "reset", hearts.name, "--yes", "--json").stdout)
    assert told == {"name": hearts.name, "state": "STOPPED", "offsets": []}
    assert json.loads(run("offsets", "show", hearts.name, "--json").stdout) == []
    assert json.loads(run("resume", hearts.name, "--json").stdout)["state"] == "RUNNING"


def test_a_mirror_that_finds_nothing_to_copy_is_well(
    connect: ConnectClient, stack: LocalStack, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    broker, name = stack.info.bootstrap_servers, f"idle-{uuid.uuid4().hex[:8]}"
    idle = cdc.MirrorCheckpoint(
        name=name, groups=(name,), source_alias="here", target_alias="there",
        source_bootstrap_servers=broker, target_bootstrap_servers=broker,
    )  # fmt: skip
    declarations = type(sys)("idle_here")
    declarations.idle = idle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "idle_here", declarations)
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)
    try:
        applied = cdc.apply(connect, idle, timeout=60)
        assert (applied.created, applied.status.summary()) == (True, "RUNNING, no task")
        assert run("plan", "idle_here:idle").stdout.startswith(f"{name}  keep  RUNNING, no task\n")
        assert cdc.health(connect, name).well
        assert {one.severity for one in cdc.diagnose(idle, client=connect)} == {cdc.Severity.OK}
        assert cdc.move(connect, name, "RUNNING", timeout=30).tasks == ()
    finally:
        cdc.delete(connect, name, forget=True)


def test_nobody_is_moved_who_is_not_there(connect: ConnectClient, run: Callable[..., Any]) -> None:
    for words in (
        ("pause", "nobody"),
        ("resume", "nobody"),
        ("stop", "nobody"),
        ("offsets", "reset", "nobody", "--yes"),
    ):
        with pytest.raises(UnknownConnector):
            CliRunner().invoke(command_line.app, [*words, "--connect-url", connect.url], catch_exceptions=False)


def test_a_stop_right_after_a_change_of_configuration_is_followed(connect: ConnectClient, hearts: Hearts) -> None:
    connect.create(hearts.name, hearts.config())
    for seconds in range(2, 5):
        connect.put_config(hearts.name, {**hearts.config(), "emit.heartbeats.interval.seconds": str(seconds)})
        assert cdc.move(connect, hearts.name, STOPPED).stopped
        connect.put_config(hearts.name, hearts.config())
        connect.resume(hearts.name)
