"""Every command that runs for long serves metrics by the same pair of options."""

from __future__ import annotations

import pytest

from docs.commands_page import commands
from eventstore.errors import FactfoldError
from eventstore.metrics import serve_metrics
from eventstore.metrics.families import RunnerMetrics
from factfold.cli.running import Served
from tests.commands import program
from tests.errors import raises

RUN_FOR_LONG = {
    "archive run", "branches run", "cdc supervise", "processes run", "projections run", "relay run",
    "subscriptions run", "watch run",
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return {" ".join(words): command for words, command in commands(program())}


def options(command):
    return {name: option for option in command.params for name in option.opts}


def test_each_command_that_runs_for_long_has_the_options(found):
    served = {path for path, command in found.items() if "--metrics-port" in options(command)}
    assert served == RUN_FOR_LONG
    assert {path for path in found if path.endswith(" run")} <= served


def test_the_options_are_the_same_everywhere(found):
    told = {
        tuple((name, options(found[path])[name].help, options(found[path])[name].envvar) for name in pair)
        for pair in [("--metrics-port", "--metrics-host")]
        for path in RUN_FOR_LONG
    }
    assert len(told) == 1
    assert {envvar for _, _, envvar in told.pop()} == {"FACTFOLD_METRICS_PORT", "FACTFOLD_METRICS_HOST"}


def test_without_a_port_nothing_is_made():
    with Served(None).metrics(lambda: pytest.fail("made")) as metrics:
        assert metrics is None


def test_a_port_that_is_taken_ends_the_command():
    with serve_metrics(RunnerMetrics("test", "t"), port=0) as port:
        with raises(FactfoldError, code="port-taken"), Served(port).metrics(lambda: RunnerMetrics("test", "t")):
            pass
