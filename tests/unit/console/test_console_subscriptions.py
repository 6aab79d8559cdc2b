"""Subscriptions and processes: what is behind, what waits for what, and what a repair came to."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID

import pytest

from eventstore import SqlEventStore
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import ProcessRows
from eventstore.scheduling import Schedule
from factfold.console.pages import subscriptions
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import SCRIPT
from tests.unit.console.teashop import Order as TeaOrder

STUCK = "/subscriptions?process=fulfilment&instance=o2"


def outcome(browser, answer):
    assert answer.status_code == 303, answer.text
    return browser.page(answer.headers["location"]).css_first(".outcome").text()


def test_instances_show_what_they_wait_for_and_what_is_stuck(fulfilled):
    page = fulfilled.page("/subscriptions")
    assert cells(page, "#processes")[0][0] == "fulfilment"
    assert cells(page, "#processes")[0][2] == "1"
    rows = {row[0]: row for row in cells(fulfilled.page("/subscriptions?process=fulfilment"), "#instances")}
    assert rows["o1"][3].startswith("timer payment, due 2")
    assert rows["o2"][1] == "compensation_failed"
    assert "the shelf is closed" in rows["o2"][3]


def test_instances_that_have_ended_are_shown_on_demand(fulfilled):
    fulfilled.act("/subscriptions/cancel-only", process="fulfilment", instance="o1")
    of_process = "/subscriptions?process=fulfilment"
    assert "o1" not in {row[0] for row in cells(fulfilled.page(of_process), "#instances")}
    assert "o1" in {row[0] for row in cells(fulfilled.page(f"{of_process}&ended=1"), "#instances")}


def told(page):
    """The lines of a timeline without their times."""
    lines = [" ".join(line.text(separator=" ").split()) for line in page.css("#timeline li")]
    return [re.sub(r"^(20\S+ \S+Z|–) | state after step.*", "", line) for line in lines]


def test_an_instance_is_a_timeline_from_its_first_event_to_what_is_still_to_come(fulfilled):
    page = fulfilled.page("/subscriptions?process=fulfilment&instance=o1")
    first, *lines = told(page)
    assert first.startswith("event order.placed order-o1@0 running sends item.reserve to tea sets timer payment , due")
    assert lines == ["reply item.reserve running", "now", "waits timer payment"]
    assert '"amount": 9.0000' in page.css_first("#timeline pre").text()
    assert page.css_first("#instance a").attributes["href"] == "/stream?stream=fulfilment-o1"


def test_what_was_set_aside_ends_a_timeline(fulfilled):
    set_aside(fulfilled, "o1")
    last = told(fulfilled.page("/subscriptions?process=fulfilment&instance=o1"))[-1]
    assert last == "set aside timer payment attempts: 1 no handler of 'o1'"


def set_aside(browser, *instances):
    """Set the timers of instances aside."""
    store = browser.sources.clients.store
    with Database(store.engine, store.tables).writing() as tx:
        rows = ProcessRows(store.tables)
        for one in rows.waiting(tx, [("fulfilment", instance) for instance in instances]):
            rows.failed(tx, one.id, due=None, error=f"no handler of {one.instance!r}")


@pytest.mark.parametrize(("cause", "retried"), [
    ("payment was set aside: no handler of …", 1),
    ("item.release, which undoes item.reserve, was refused: the shelf is closed", 1),
    ("", 2),
    ("something else", 0),
])  # fmt: skip
def test_instances_are_retried_together_by_what_keeps_them_from_going_on(fulfilled, cause, retried):
    set_aside(fulfilled, "o1")
    causes = [row[:2] for row in cells(fulfilled.page("/subscriptions?process=fulfilment"), "#troubled")]
    said = outcome(fulfilled, fulfilled.act("/subscriptions/retry-all", process="fulfilment", cause=cause))
    assert f"retried {retried} of {retried} instances of fulfilment" in said
    assert not cause or retried == [pattern for _, pattern in causes].count(cause)


def test_instances_are_searched_and_shown_page_by_page(fulfilled, monkeypatch):
    monkeypatch.setattr(subscriptions, "SHOWN", 1)
    path = "/subscriptions?process=fulfilment"
    first = fulfilled.page(path)
    second = fulfilled.page(first.css_first("a[rel=next]").attributes["href"])
    assert [cells(page, "#instances")[0][0] for page in (first, second)] == ["o2", "o1"]
    assert second.css_first("a[rel=next]") is None
    assert [row[0] for row in cells(fulfilled.page(f"{path}&find=1"), "#instances")] == ["o1"]
    assert cells(fulfilled.page(f"{path}&find=%25"), "#instances") == []
    assert "is no place in the list" in fulfilled.page(f"{path}&after=x").text()


def test_a_retry_says_what_the_instance_waits_for_now(fulfilled):
    said = outcome(fulfilled, fulfilled.act("/subscriptions/retry", process="fulfilment", instance="o2"))
    assert "retried fulfilment-o2: it is compensating" in said
    assert "waits for command item.release, due now" in said


def test_a_cancelled_instance_undoes_what_was_accepted(fulfilled):
    said = outcome(fulfilled, fulfilled.act("/subscriptions/cancel", process="fulfilment", instance="o1"))
    assert "cancelled fulfilment-o1: it is compensating" in said


def test_an_instance_is_cancelled_and_left_as_it_is(fulfilled):
    said = outcome(fulfilled, fulfilled.act("/subscriptions/cancel-only", process="fulfilment", instance="o1"))
    assert "it is cancelled" in said
    labels = [button.text() for button in fulfilled.page("/subscriptions?process=fulfilment&instance=o1").css("button")]
    assert labels == ["Retry"]
    again = fulfilled.act("/subscriptions/cancel-only", process="fulfilment", instance="o1")
    assert "has ended: it is cancelled" in outcome(fulfilled, again)


def test_a_repair_of_a_process_that_is_not_declared_is_refused(fulfilled):
    said = outcome(fulfilled, fulfilled.act("/subscriptions/retry", process="nothing", instance="o1"))
    assert "process 'nothing' is not declared here" in said


def test_a_scheduled_command_is_shown_and_cancelled(browser, shop):
    with SqlEventStore(f"sqlite:///{shop}") as store:
        later = Schedule(store).after(timedelta(hours=24))
        command = later.send("o1", TeaOrder.place, customer_id=1, quantity=1, note=SCRIPT)
    page = browser.page("/subscriptions")
    (row,) = cells(page, "#scheduled")
    assert row[1] == "order.place"
    assert SCRIPT in row[2]
    assert len(page.css("script")) == 1
    said = outcome(browser, browser.act("/subscriptions/command-cancel", command=str(command)))
    assert f"cancelled command {command}" in said
    assert browser.page("/subscriptions").css_first("#scheduled") is None


@pytest.mark.parametrize(("command", "words"), [
    (str(UUID(int=1)), "was sent, or cancelled before"), ("x", "is no id of a command"),
])  # fmt: skip
def test_an_unknown_command_is_refused(browser, command, words):
    assert words in outcome(browser, browser.act("/subscriptions/command-cancel", command=command))


def test_a_reset_without_kafka_is_refused_in_words(browser):
    said = outcome(browser, browser.act("/subscriptions/reset", group="reviews", topic="order.large", offsets="0=0"))
    assert "Kafka" in said
    assert "remedy:" in said


def test_a_read_only_console_names_the_command(fulfilled):
    reader = Browser(fulfilled.sources, allow_actions=False)
    page = reader.page(STUCK)
    assert page.css("form[method=post]") == []
    assert "factfold processes retry tests.unit.eventstore.fulfilment:Fulfilment o2" in page.text()
