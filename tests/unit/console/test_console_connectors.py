"""Connectors: what Connect says of them, and what came of a restart, a pause and a resume."""

from __future__ import annotations

import pytest

from cdc.source.catalogue import ReplicationSlot
from eventstore.errors import FactfoldError
from factfold.console import parts
from factfold.console.pages import connectors as page_module
from factfold.console.pages import overview
from factfold.console.parts import Places
from factfold.console.sources import Reading, Sources
from factfold.discovery import Discovery
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.stub_connect import StubConnect, connect_worker


@pytest.fixture
def stub():
    found = StubConnect(delay=0.2)
    found.add("orders-cdc", failed=True)
    found.add("customers-cdc")
    return found


@pytest.fixture
def sources(stub):
    with connect_worker(stub) as url:
        opened = Sources(Places(connect_url=url), Discovery(), every=0.0, patience=30.0)
        yield opened
        opened.close()


@pytest.fixture
def browser(sources):
    return Browser(sources)


def outcome(browser, answer):
    assert answer.status_code == 303
    return browser.page(answer.headers["location"]).css_first(".outcome").text()


def test_what_failed_comes_first_with_its_cause(browser):
    rows = cells(browser.page("/connectors"), "#connectors")
    assert [row[0] for row in rows] == ["orders-cdc", "customers-cdc"]
    assert "Connection refused" in rows[0][2]
    assert rows[0][3] == "0 FAILED"
    assert rows[1][2:4] == ["RUNNING", "0 RUNNING"]


def test_a_connector_shows_tasks_causes_and_offsets_and_no_secret(browser):
    page = browser.page("/connectors?name=orders-cdc")
    assert "Connection refused" in page.css_first("#causes").text()
    assert "<script>alert(1)</script>" in page.css_first("#causes").text()
    assert len(page.css("script")) == 1
    assert cells(page, "#tasks") == [["0", "FAILED", "127.0.0.1:8083"]]
    assert "the stream of changes" in page.css_first("#connector").text()
    for path in ("/connectors?name=orders-cdc", "/connectors", "/api/connectors?name=orders-cdc"):
        assert "hunter2" not in browser.client.get(path).text


def slot(**given):
    facts = {"plugin": "pgoutput", "database": "shop", "active": True, "wal_status": "reserved", "lag_bytes": 2048,
             "retained_bytes": 4096, "safe_bytes": None}  # fmt: skip
    return ReplicationSlot(name="slot_customers-cdc", **facts | given)


@pytest.mark.parametrize(
    ("found", "before", "health", "waiting"),
    [
        (slot(), (), "healthy", "2.0 KiB"),
        (slot(lag_bytes=3 << 30), (), "late", "3.0 GiB"),
        (slot(lag_bytes=3 << 30), (90 << 30, 60 << 30, 40 << 30, 20 << 30, 9 << 30, 3 << 30), "healthy", "3.0 GiB"),
        (slot(wal_status="unreserved"), (), "late", "2.0 KiB"),
        (slot(wal_status="lost", lag_bytes=None), (), "failed", "–"),
    ],
)
def test_the_overview_judges_a_connector_that_runs_by_its_slot(sources, monkeypatch, found, before, health, waiting):
    monkeypatch.setattr(parts, "_APART", 0.0)
    for sample in before:
        sources.clients.trends.note("slot customers-cdc", sample)
    monkeypatch.setattr(overview, "SLOTS", Reading(lambda clients: {"customers-cdc": found}))
    page = Browser(sources).page("/")
    (row,) = [row for row in cells(page, "#watched") if row[2] == "customers-cdc"]
    assert (row[0], row[4]) == (health, waiting)
    charts = Browser(sources).page("/connectors?name=customers-cdc").css("figure svg.chart")
    assert len(charts) == bool(before)


def test_the_overview_does_not_call_a_connector_healthy_whose_slot_cannot_be_read(sources, monkeypatch):
    def unreadable(clients):
        raise FactfoldError("the source database does not answer", remedy="start it")

    monkeypatch.setattr(overview, "SLOTS", Reading(unreadable))
    (row,) = [row for row in cells(Browser(sources).page("/"), "#watched") if row[2] == "customers-cdc"]
    assert row[0] == "unknown"
    assert "does not answer" in row[3]


def test_a_restart_says_what_came_of_it(browser, stub):
    said = outcome(browser, browser.act("/connectors/restart", name="orders-cdc", **{"return": "name=orders-cdc"}))
    assert "restarted orders-cdc: RUNNING, task 0 RUNNING" in said
    assert stub.failed == set()
    assert cells(browser.page("/connectors"), "#connectors")[0][3] == "0 RUNNING"


def test_a_restart_that_fails_again_says_why(browser, stub):
    stub.hopeless.add("orders-cdc")
    said = outcome(browser, browser.act("/connectors/restart", name="orders-cdc"))
    assert "failed" in said
    assert "FAILED: " in said
    assert "remedy:" in said


def test_all_that_failed_are_restarted_and_each_is_named(browser, stub):
    stub.add("payments-cdc", failed=True)
    stub.hopeless.add("orders-cdc")
    said = outcome(browser, browser.act("/connectors/restart-failed"))
    assert "restarted 1 of 2 connectors that had FAILED" in said
    assert "payments-cdc: RUNNING" in said
    assert "orders-cdc" in said
    assert browser.page("/connectors").text().count("Restart all that FAILED (1)") == 1


@pytest.mark.parametrize(("action", "state"), [("pause", "PAUSED"), ("resume", "RUNNING")])
def test_a_connector_is_paused_and_resumed_and_its_tasks_are_waited_for(browser, stub, action, state):
    stub.states["customers-cdc"] = {"PAUSED": "RUNNING", "RUNNING": "PAUSED"}[state]
    said = outcome(browser, browser.act(f"/connectors/{action}", name="customers-cdc"))
    assert f"{action}d customers-cdc: {state}, task 0 {state}" in said
    assert stub.states["customers-cdc"] == state


def test_a_state_that_does_not_come_is_reported_after_a_bounded_time(browser, stub, monkeypatch):
    monkeypatch.setattr(page_module, "ACTION_SECONDS", 0.5)
    stub.delay = 60.0
    said = outcome(browser, browser.act("/connectors/pause", name="customers-cdc"))
    assert "was not paused after" in said
    assert "PAUSED, task 0 RUNNING" in said


def test_a_read_only_console_has_no_buttons(sources):
    page = Browser(sources, allow_actions=False).page("/connectors?name=orders-cdc")
    assert page.css("form[method=post]") == []
    assert "factfold cdc restart orders-cdc" in page.text()
