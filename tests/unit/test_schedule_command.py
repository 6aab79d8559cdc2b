"""`factfold schedule`: what it lists and repairs, and its exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from eventstore import SqlEventStore
from eventstore.backends.sql.process_rows import Scheduled
from eventstore.processes.worker import ProcessWorker
from eventstore.scheduling import Schedule
from tests.commands import factfold
from tests.conformance.process_shop import Exploding, explode
from tests.unit.eventstore.fulfilment import Order
from tests.unit.test_documented_json import documented, fields


@pytest.fixture
def run(tmp_path):
    """Run a command over a store in which a command failed once, and another one waits."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with SqlEventStore(url) as store:
        store.create_tables()
        schedule = Schedule(store)
        schedule.at(datetime(2026, 1, 1, tzinfo=UTC)).send("o1", explode)
        schedule.after(timedelta(days=1)).send("o2", Order.cancel, reason="late")
        ProcessWorker(store, commands=[Exploding]).run_once()

    def invoke(*arguments):
        return factfold("schedule", *arguments, "--store-url", url)

    return invoke


def test_scheduled_commands_are_listed_with_the_keys_of_the_page(run):
    done = run("list", "--json")
    assert done.exit_code == 0
    failed, waiting = json.loads(done.stdout)
    assert list(failed) == documented("schedule list")[: len(fields(Scheduled))] == fields(Scheduled)
    assert (failed["name"], failed["error"], failed["attempts"]) == ("exploding.explode", "ZeroDivisionError", 1)
    assert (waiting["target"], waiting["arguments"]) == ("o2", '{"reason": "late"}')


def test_a_failed_command_is_named_with_exit_code_3(run):
    done = run("list", "--failed")
    assert done.exit_code == 3
    assert "exploding.explode for exploding-o1 {}\n  failed, attempts: 1: ZeroDivisionError\n1 command\n" in done.stdout


def test_a_failed_command_is_retried_and_cancelled_by_its_id(run):
    (failed,) = json.loads(run("list", "--failed", "--json").stdout)
    assert run("retry", failed["id"]).stdout == f"{failed['id']} is due now\n"
    again = run("retry", failed["id"])
    assert (again.exit_code, "there is no such command" in again.stderr) == (1, True)
    assert json.loads(run("cancel", failed["id"], "--json").stdout) == {"done": True}
    assert json.loads(run("cancel", failed["id"], "--json").stdout) == {"done": False}
    assert run("cancel", "no-id").exit_code == 2
