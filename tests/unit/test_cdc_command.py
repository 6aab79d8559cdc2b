"""Connectors and comparisons by the command line."""

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
from cdc.comparing.report import TableComparison
from cdc.connect.status import ConnectorStatus, TaskStatus
from cdc.errors import InvalidConnector
from cdc.operating.supervisor import ConnectorHealth
from cdc.source.catalogue import ReplicationSlot
from cdc.source.grants import grant_notes
from eventstore.errors import DeclarationError
from factfold.cli.cdc import compare as command_line
from factfold.cli.cdc.compare import as_plain, lines_of
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


# ---- how `factfold cdc compare` shows what it found


FOUND = TableComparison(
    "public.items",
    "shop.items",
    ("shop", "id"),
    source_rows=1_000,
    state_rows=999,
    chunks=1,
    missing=(("a", "1"), ("a", "2"), ("a", "3")),
    differing=(("b", "1"),),
    differing_columns={("b", "1"): ("name", "price")},
    faults=("column old is not in the source; remove it from the model",),
    notes=("column new of the source is not declared in the model",),
    not_compared={"tags": "hstore in the source, map in the state"},
    repaired=2,
    unrepaired="its records are Avro",
)


def test_each_kind_of_difference_is_counted_and_some_keys_are_named() -> None:
    table, row, *details = lines_of([FOUND], show=2)
    assert table.split() == "table state rows in state missing extra differing changing result".split()
    assert row.split() == [
        "public.items",
        "shop.items",
        "1,000",
        "999",
        "3",
        "0",
        "1",
        "0",
        "DIFFERS,",
        "2",
        "repaired",
    ]
    assert [line.removeprefix("  public.items: ") for line in details] == [
        "column old is not in the source; remove it from the model",
        "shop=a, id=1 in the source alone",
        "shop=a, id=2 in the source alone",
        "1 more in the source alone",
        "shop=b, id=1 with other values: name, price",
        "not repaired: its records are Avro",
        "column tags is not compared: hstore in the source, map in the state",
        "note: column new of the source is not declared in the model",
    ]


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (TableComparison("public.a", "shop.a", ("id",)), "equal"),
        (TableComparison("public.a", "", (), notes=("not compared",)), "not compared"),
        (TableComparison("public.a", "shop.a", ("id",), changing=(("1",),)), "DIFFERS"),
        (TableComparison("public.a", "shop.a", ("id",), faults=("a column is not in the source",)), "DIFFERS"),
    ],
)
def test_only_what_was_compared_and_is_the_same_is_equal(found: TableComparison, result: str) -> None:
    assert list(lines_of([found], show=1))[1].endswith(result)


def test_json_has_all_counts_and_the_keys_that_are_shown() -> None:
    told = json.loads(json.dumps(as_plain(FOUND, show=1)))
    assert (told["missing"], told["extra"], told["equal"], told["repaired"]) == (3, 0, False, 2)
    assert told["keys"] == {
        "missing": [{"shop": "a", "id": "1"}],
        "extra": [],
        "differing": [{"shop": "b", "id": "1"}],
        "changing": [],
    }
    assert told["differing_columns"] == [{"key": {"shop": "b", "id": "1"}, "columns": ["name", "price"]}]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = type(sys)("shop_here")
    declarations.sources = [SHOP]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_here", declarations)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")


def chosen(*tables: str, database: str = "shop") -> Any:
    engine = command_line.database(f"postgresql+psycopg://nobody@db/{database}")
    with engine as opened:
        return command_line._sources([SHOP], "shop_here:sources", opened, list(tables) or None)


@pytest.mark.usefixtures("sources")
def test_the_sources_of_the_given_database_are_compared_with_their_tables() -> None:
    assert chosen() == [(SHOP, ["public.customers"])]
    with pytest.raises(InvalidConnector, match=r"does not capture table 'public\.other'\n.*public\.customers"):
        chosen("public.other")


@pytest.mark.usefixtures("sources")
def test_a_database_that_no_source_reads_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no PostgresSource that reads the database another"):
        chosen(database="another")


@pytest.mark.usefixtures("sources")
def test_a_group_is_asked_for() -> None:
    words = ["compare", "shop_here:sources", "--source-url", "sqlite://", "--views-url", "sqlite://"]
    ran = factfold("cdc", *words)
    assert (ran.exit_code, "--group" in ran.output) == (2, True)


def test_groups_without_a_state_of_any_table_are_refused() -> None:
    none = TableComparison("public.items", "", (), notes=("not compared",))
    with pytest.raises(DeclarationError, match=r"no state of shop:views is made from public\.items"):
        command_line._require_compared([none], ["shop:views"])
