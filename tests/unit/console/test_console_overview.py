"""The overview: what is wrong comes first, with its cause and the command to type."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from eventstore.delivery.source import Lag, PartitionLag
from factfold.console import parts
from factfold.console.pages.overview import LATE_SECONDS, _branches, _groups, _subscriptions
from factfold.console.pages.standing import BRANCHES, GROUPS
from factfold.console.pages.subscriptions import SUBSCRIPTIONS
from tests.unit.console.conftest import cells


def by_name(page):
    return {row[2]: row for row in cells(page, "#watched")}


def test_what_failed_comes_first_with_cause_and_command(browser):
    page = browser.page("/")
    first = cells(page, "#watched")[0]
    assert first[:3] == ["failed", "group", "teashop"]
    assert "no process applies changes" in first[3]
    assert "factfold projections run tests.unit.console.teashop:group" in first[3]


def test_a_group_shows_what_waits_in_its_log_and_for_how_long(browser):
    row = by_name(browser.page("/"))["teashop"]
    assert row[4] == "2"  # offsets 2 and 3 of the topic of orders
    assert row[5] != "–"


def test_each_kind_that_is_declared_has_its_row(browser):
    rows = by_name(browser.page("/"))
    assert {name: row[1] for name, row in rows.items()} == {
        "teashop": "group", "reviews": "subscription", "order": "branches", "payment": "process",
        "event store": "store",
    }  # fmt: skip


def test_a_subscription_of_the_store_shows_what_waits_for_it(browser):
    assert by_name(browser.page("/"))["reviews"][4] == "3"


def test_a_late_subscription_of_the_store_is_started_by_up(sources):
    (state,) = sources.look().part(SUBSCRIPTIONS).value
    state = replace(state, lag=Lag((PartitionLag(0, 3, LATE_SECONDS + 1, "order"),)))
    look = sources.look()
    assert [one.remedy for one in _subscriptions(look, [state])] == ["factfold up PACKAGE"]
    sources.clients.places = replace(sources.clients.places, kafka=True)
    assert [one.remedy for one in _subscriptions(look, [state])] == [f"factfold subscriptions run {state.target}"]


@pytest.mark.parametrize(
    ("samples", "routed", "health"),
    [
        ((0,) * 3, (5,) * 3, "healthy"),
        ((7,) * 3, (5,) * 3, "late"),
        ((7,) * 3, (5, 9, 30), "healthy"),  # it routes: its checkpoint is behind what it has delivered
        ((1, 5, 9, 20, 40, 80), (1, 2, 3, 4, 5, 6), "late"),
        ((90, 60, 40, 20, 9, 2), (1, 2, 3, 4, 5, 6), "healthy"),
    ],
)
def test_a_router_that_does_not_catch_up_is_late(sources, monkeypatch, samples, routed, health):
    monkeypatch.setattr(parts, "_APART", 0.0)
    for lag, delivered in zip(samples, routed, strict=True):
        sources.clients.trends.note("branches order", lag)
        sources.clients.trends.note("routed order", delivered)
    (state,) = sources.look().part(BRANCHES).value
    (row,) = _branches(sources.look(), [replace(state, routed=True, lag=samples[-1])])
    assert row.health == health
    assert row.remedy == (None if health == "healthy" else f"factfold branches run {state.target}")


@pytest.mark.parametrize(("version", "health", "says"), [
    (1, "late", "another definition serves"), (2, "late", "an older definition serves"),
    (0, "unknown", "version 1 serves, and the code that the console has is version 0"),
])  # fmt: skip
def test_a_group_that_was_built_by_other_code_says_which_is_older(sources, version, health, says):
    (group,) = sources.look().part(GROUPS).value
    (row,) = group.generations
    state = replace(group, generations=[{**row, "holder": "a runner"}], changed=True, version=version)
    (shown,) = _groups(sources.look(), [state])
    assert (shown.health, shown.cause) == (health, says)


@pytest.mark.parametrize(("due", "health"), [(-3600, "late"), (3600, "healthy"), (None, "failed")])
def test_a_process_whose_timer_is_overdue_is_late(browser, sources, due, health):
    store = sources.clients.store
    at = None if due is None else datetime.now(UTC) + timedelta(seconds=due)
    row = {"id": uuid4(), "due": at, "kind": "timer", "name": "payment", "target": "", "arguments": "{}",
           "process": "payment", "instance": "o1", "answered": False, "attempts": 0,
           "set_at": datetime.now(UTC)}  # fmt: skip
    with store.engine.begin() as connection:
        connection.execute(store.tables.scheduled.insert().values(**row))
    shown = by_name(browser.page("/"))["payment"]
    assert shown[0] == health
    assert ("factfold processes run tests.unit.console.teashop:Payment" in shown[3]) == (health == "late")
    assert (shown[5] == "1 h") == (health == "late")
