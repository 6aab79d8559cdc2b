"""`factfold processes`: what it lists, shows and repairs, and its exit codes."""

from __future__ import annotations

import json

import pytest

from eventstore.processes.administration import InstanceStatus, ProcessCount
from eventstore.processes.worker import WorkReport
from tests.commands import factfold
from tests.unit.eventstore.fulfilled import fill_with_orders
from tests.unit.test_documented_json import documented, fields

TARGET = "tests.unit.eventstore.fulfilment:Fulfilment"


@pytest.fixture
def run(tmp_path):
    """Run a command over a store in which o1 waits for its payment, and the compensation of o2 was refused."""
    url = f"sqlite:///{tmp_path}/shop.db"
    fill_with_orders(url)

    def invoke(*arguments, json_=True):
        options = ["--json"] if json_ else []
        return factfold("processes", *arguments, "--store-url", url, *options)

    return invoke


def told(done, code=0):
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_the_keys_are_those_of_the_page(run):
    (first, _) = told(run("list"))
    assert list(first) == documented("processes list")[: len(fields(InstanceStatus))] == fields(InstanceStatus)
    assert list(told(run("stats"))[0]) == documented("processes stats") == fields(ProcessCount)
    assert documented("processes run") == fields(WorkReport)


def test_what_is_stuck_is_listed_with_its_reason_and_exit_code_3(run):
    (stuck,) = told(run("list", "--stuck", "1h"), code=3)
    assert (stuck["instance"], stuck["status"]) == ("o2", "compensation_failed")
    assert "the shelf is closed" in stuck["problem"]
    shown = run("list", "--stuck", "1h", json_=False).stdout
    assert "waits for a retry of its compensation\n  problem: item.release" in shown


def test_what_waits_says_for_what(run):
    waiting = told(run("show", "fulfilment-o1"))
    assert waiting["waits_for"].startswith("timer payment, due 2")
    assert [step["cause"]["name"] for step in waiting["steps"]] == ["order.placed", "item.reserve"]
    assert waiting["steps"][-1]["state"]["reserved"] is True
    assert "sends item.reserve to tea" in run("show", "fulfilment-o1", json_=False).stdout


def test_an_instance_is_cancelled_and_another_retried(run):
    assert told(run("cancel", TARGET, "o1"))["status"] == "compensating"
    assert told(run("retry", TARGET, "o2"))["status"] == "compensating"
    assert told(run("list", "--stuck", "1h")) == []


def test_all_with_a_problem_or_of_one_cause_are_retried_or_cancelled(run):
    assert run("retry", TARGET, "--cause", "another", json_=False).stdout == "0 of 0 instances\n"
    assert told(run("cancel", TARGET, "--cause", "the shelf is closed", "--no-compensate"))["status"] == "cancelled"
    assert "is empty" in str(run("cancel", TARGET, "").exception)  # an empty id means no others
    for words in ((), ("o1", "--all")):
        assert run("retry", TARGET, *words).exit_code == 2


def test_retry_all_repeats_what_has_a_problem(run):
    assert run("retry", TARGET, "--all", json_=False).stdout.endswith("1 of 1 instances\n")
    assert told(run("list", "--stuck", "1h")) == []


def test_an_instance_that_is_not_there_is_an_error_with_exit_code_1(run):
    done = run("show", "fulfilment-o9")
    assert done.exit_code == 1
    assert "there is no fulfilment 'o9'" in str(done.exception)


def test_a_class_that_is_no_process_is_an_error(run):
    done = run("retry", "tests.unit.eventstore.fulfilment:Order", "o1")
    assert "is no process" in str(done.exception)
