"""Subscriptions and processes: what is behind, what waits for what, and what a repair came to."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from eventstore import SqlEventStore
from eventstore.scheduling import Schedule
from factfold.console.definitions import find_definitions
from factfold.console.places import Places
from factfold.console.sources import Sources
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import SCRIPT
from tests.unit.console.teashop import Order as TeaOrder
from tests.unit.eventstore.fulfilled import fill_with_orders

STUCK = "/subscriptions?process=fulfilment&instance=o2"


@pytest.fixture
def fulfilled(tmp_path):
    """A browser over a store in which o1 waits for its payment, and the compensation of o2 was refused."""
    url = f"sqlite:///{tmp_path}/shop.db"
    fill_with_orders(url)
    found = find_definitions(["tests.unit.eventstore.fulfilment:Fulfilment"])
    with Sources(Places(store_url=url), found, every=0.0, patience=30.0) as opened:
        yield Browser(opened)


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


def test_an_instance_shows_its_steps_and_its_timers(fulfilled):
    page = fulfilled.page("/subscriptions?process=fulfilment&instance=o1")
    steps = cells(page, "#steps")
    assert "item.reserve" in steps[0][1]
    assert "sends item.reserve to tea" in steps[-1][2]
    assert cells(page, "#due")[0][1] == "timer payment"
    assert page.css_first("#instance a").attributes["href"] == "/stream?stream=fulfilment-o1"


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
