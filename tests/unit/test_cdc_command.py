"""What `factfold cdc` says without asking a worker."""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import responses
import structlog

import cdc
from cdc import MirrorHeartbeat, PostgresSource, grant_statements
from cdc.connect.status import ConnectorStatus, TaskStatus
from cdc.errors import InvalidConnector
from cdc.operating.supervisor import ConnectorHealth
from cdc.source.catalogue import ReplicationSlot
from cdc.source.grants import grant_notes
from eventstore.errors import DeclarationError
from factfold.stack import StackInfo
from tests.commands import factfold

SHOP = PostgresSource(
    name="shop", host="db", database="shop", user="shop_cdc", password="${file:/secrets/shop.properties:password}",
    topic_prefix="shop", tables=("public.customers",),
)  # fmt: skip
HEARTS = MirrorHeartbeat(
    name="hearts", source_alias="a", target_alias="b", source_bootstrap_servers="a:9", target_bootstrap_servers="b:9"
)


def run(*words: str) -> Any:
    return factfold("cdc", *words, catch_exceptions=False)


STACK = StackInfo("here", Path("/stacks/here"), {"postgres": 5433, "kafka": 9, "connect": 8}, "hush", {})
WORKER = "http://connect:8083"
STATES = {"broken": "FAILED", "well": "RUNNING", "rests": "PAUSED"}


def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = type(sys)("shop_here")
    declarations.sources = [SHOP, HEARTS]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_here", declarations)


def test_the_rights_that_a_source_needs_are_printed_to_be_run_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    declared(monkeypatch)

    printed = run("grants", "shop_here:sources").stdout

    *lines, other = printed.splitlines()
    statements = [f"{statement};" for statement in grant_statements(SHOP)]
    assert lines == ["-- shop", *grant_notes(SHOP), *statements]
    assert r"\password" in grant_notes(SHOP)[0]
    assert all(note.startswith("-- ") for note in grant_notes(SHOP))
    assert "PASSWORD" not in " ".join(statements)
    assert other == "-- hearts: no SQL; it is known for sources of PostgreSQL only"
    told = json.loads(run("grants", "shop_here:sources", "--json").stdout)
    assert told == {"shop": list(grant_statements(SHOP)), "hearts": []}


def prepare(*options: str) -> Any:
    words = ["cdc", "prepare", "shop_here:sources", "--source-url", "postgresql://shop@127.0.0.1:9/shop"]
    return factfold(*words, "--connect-url", WORKER, *options, catch_exceptions=False)


def test_aggregates_without_an_outbox_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    declared(monkeypatch)
    with pytest.raises(InvalidConnector, match="no connector of the source publishes their events"):
        prepare("--aggregate", "tests.shipments:Shipment")


def test_what_has_no_tables_is_no_declarative_base(monkeypatch: pytest.MonkeyPatch) -> None:
    declared(monkeypatch)
    with pytest.raises(DeclarationError, match="'json:JSONDecoder' has no tables"):
        prepare("--tables", "json:JSONDecoder")


def test_a_local_stack_has_no_worker_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    declared(monkeypatch)
    monkeypatch.setattr("factfold.stack.local.load", lambda folder: STACK)
    with pytest.raises(DeclarationError, match="not that of the local stack 'here'"):
        run("plan", "shop_here:sources", "--stack", "here", "--connect-url", "http://production:8083")


def test_two_connectors_of_one_role_create_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = type(sys)("shop_here")
    outbox = cdc.OutboxSource(
        name="outbox", host="db", database="shop", user="shop_cdc", password=SHOP.password, topic_prefix="shop_outbox"
    )
    declarations.sources = [SHOP, outbox]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_here", declarations)
    statements = [line for line in run("grants", "shop_here:sources").stdout.splitlines() if line[:2] != "--"]
    assert len(statements) == len(set(statements))
    assert set(statements) == {f"{one};" for one in (*grant_statements(SHOP), *grant_statements(outbox))}


def test_a_reference_to_a_module_that_is_missing_is_no_change_that_a_plan_tells() -> None:
    with pytest.raises(DeclarationError, match="there is no module 'no_such_module_here' for the connector"):
        run("plan", "no_such_module_here:x")


@pytest.mark.parametrize("reference", ["nonsense", "json:no_such_attribute"])
def test_a_reference_that_cannot_be_loaded_is_no_change_that_a_plan_tells(reference: str) -> None:
    with pytest.raises(InvalidConnector) as refused:
        run("plan", reference)
    assert (refused.value.place, "module:attribute" in refused.value.remedy) == (reference, True)


def test_nobody_is_restarted_without_being_asked_for() -> None:
    result = run("restart", "--connect-url", "http://127.0.0.1:9")
    assert (result.exit_code, "--failed" in result.output) == (2, True)


def test_slots_are_not_dropped_without_their_database() -> None:
    assert run("delete", "shop", "--drop-slot", "--connect-url", "http://127.0.0.1:9").exit_code == 2


def test_what_a_doctor_does_not_look_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    declared(monkeypatch)
    words = ("doctor", "shop_here:sources", "--no-worker")
    text = run(*words).stdout
    assert text.count("  not looked at: worker (--no-worker), topics (no --kafka-bootstrap-servers)\n") == 2
    assert "source: not looked at: the URL of its database was not given (--source-url)" in text
    assert "source: not looked at: Factfold looks into databases of PostgreSQL only" in text
    elsewhere = run(*words, "--source-url", "postgresql+psycopg://ann@127.0.0.1:9/elsewhere", "--json")
    told = [json.loads(line)["not_looked_at"][0] for line in elsewhere.stdout.splitlines()]
    assert told == [
        "source (it reads database shop, and the one given is elsewhere)",
        "source (it does not read PostgreSQL)",
    ]


def test_all_that_failed_are_restarted_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def restarted(client: Any, name: str, **_: Any) -> ConnectorStatus:
        asked.append(name)
        return ConnectorStatus(name, "RUNNING", "w:1", (TaskStatus(0, "RUNNING", "w:1"),))

    monkeypatch.setattr(cdc, "restart_connector", restarted)
    with responses.RequestsMock() as worker:
        worker.get(f"{WORKER}/connectors", json={name: overview(name, state) for name, state in STATES.items()})
        worker.get(f"{WORKER}/connectors/broken/config", json={})
        result = run("restart", "--failed", "--connect-url", WORKER)
    assert (result.exit_code, asked) == (0, ["broken"])


def overview(name: str, state: str) -> dict[str, Any]:
    worker = {"state": state, "worker_id": "w:1"}
    return {
        "info": {"name": name, "type": "source", "config": {}, "tasks": []},
        "status": {"name": name, "connector": worker, "tasks": [{"id": 0, **worker}]},
    }


def test_the_status_shows_slots_and_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    running = ConnectorStatus("shop", "RUNNING", "w:1", (TaskStatus(0, "RUNNING", "w:1"),))
    slot = ReplicationSlot("factfold_shop", "pgoutput", "shop", True, "reserved", 100, 2048, None)
    found = (ConnectorHealth(running, slot, 3.2, well=True), ConnectorHealth(running))
    monkeypatch.setattr(cdc, "connector_health", lambda client, *names, source: found)
    shown = run("status", "--connect-url", WORKER)
    cells = [re.split(r" {2,}", line) for line in shown.stdout.splitlines()]
    assert shown.exit_code == 3  # the second is not well
    assert cells[0] == ["name", "state", "tasks", "last event", "slot", "behind", "holds", "log"]
    assert cells[1] == ["shop", "RUNNING", "0 RUNNING", "3 s ago", "read", "100 B", "2.0 KiB", "reserved"]
    assert cells[2][3:] == ["-"] * 5
    told = json.loads(run("status", "--connect-url", WORKER, "--json").stdout.splitlines()[0])
    assert (told["slot"]["name"], told["last_event_age_seconds"], told["causes"]) == ("factfold_shop", 3.2, [])


def test_a_supervisor_s_log_may_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    monkeypatch.setattr("factfold.cli.cdc.operate.stop_on_signal", lambda: stopped)
    monkeypatch.setattr(cdc.Supervisor, "look", lambda self: (structlog.get_logger().warning("looked"), stopped.set()))
    try:
        result = run("supervise", "--json", "--connect-url", WORKER)
    finally:
        structlog.reset_defaults()
    (line,) = result.stderr.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["level"]) == ("looked", "warning")
