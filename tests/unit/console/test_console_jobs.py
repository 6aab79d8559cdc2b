"""Commands that the console starts: what they print of personal values, and how they end with the console."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

import projections
from factfold import on_demand
from factfold.cli.views import generations as cli_generations
from factfold.cli.views import projections as cli_projections
from factfold.console import jobs as jobs_module
from factfold.console.jobs import Jobs
from factfold.console.parts import Places
from projections import ViewVerdict
from projections.lifecycle.cutover import ViewComparison
from projections.lifecycle.rebuild import RebuildReport
from projections.stores.roles import DifferingRow
from tests.commands import factfold
from tests.unit.console.test_console_edges import NAME
from tests.waiting import wait_until

ROW = DifferingRow(
    {"person_id": "p1"},
    {"person_id": "p1", "name": NAME, "country": "NO"},
    {"person_id": "p1", "name": "Another Name", "country": "NO"},
)
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(600)
"""
COMPARED = {"members": ViewComparison(("person_id", "name", "country"), 1, 1, "a", "b", (ROW,))}


def test_a_command_that_does_not_end_is_killed_with_the_console(monkeypatch):
    monkeypatch.setattr(jobs_module, "_END_SECONDS", 0.2)
    jobs = Jobs(Places())
    started = partial(subprocess.Popen, [sys.executable, "-c", STUBBORN])
    monkeypatch.setattr(jobs_module.subprocess, "Popen", lambda _, **given: started(**given))
    jobs.start("group club", ["projections", "verify"])
    wait_until(lambda: jobs.about("group club")[0].output == ("1",))
    jobs.close()
    wait_until(lambda: jobs.about("group club")[0].code == -signal.SIGKILL)


@pytest.fixture
def answers(monkeypatch):
    """The commands without Spark: each comparison finds one row whose name differs."""

    @contextmanager
    def no_environment(*given):
        yield SimpleNamespace(spark=None)

    monkeypatch.setattr(on_demand, "personal_columns", lambda *_: {"members": {"name"}}, raising=False)
    for module in (cli_projections, cli_generations):
        monkeypatch.setattr(module, "opened_environment", no_environment)
    monkeypatch.setattr(cli_projections, "require_same_definition", lambda *given: None)
    monkeypatch.setattr(cli_generations, "require_serving", lambda *given: None)
    found = {
        "verify": {"members": ViewVerdict(1, 1, "a", "b", ("p1",), (ROW,))},
        "diff": COMPARED,
        "rebuild": RebuildReport(2, 1, {"members": 1}, comparison=COMPARED, withheld=True),
    }
    for name, answer in found.items():
        monkeypatch.setattr(projections, name, lambda *_, answer=answer, **__: answer, raising=False)


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("command", ["verify", "diff", "rebuild"])
def test_a_comparison_shows_no_value_of_a_personal_column(answers, command, options):
    target = "tests.unit.console.test_console_edges:MEMBERS"
    result = factfold("projections", command, target, "--views-url", "x", *options)
    assert result.exit_code == 3, result.output
    assert "p1" in result.stdout
    assert "*** (differs)" in result.stdout
    assert "NO" in result.stdout
    for value in (NAME, "Another Name"):
        assert value not in result.stdout
