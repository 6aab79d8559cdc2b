"""What the command shows when something is wrong: a cause, a remedy, exit code 1, and nothing made."""

from __future__ import annotations

import sys

import pytest
import sqlalchemy as sa

from factfold.cli.entry import main
from projections import Environment
from projections.stores.port import REBUILDER
from projections.stores.postgres import PostgresTableStore

GROUPS = "tests.integration.broken_groups"


@pytest.fixture
def run_command(stack, spark, database, monkeypatch, capsys):
    """Run ``factfold …`` in this process, on its Spark; returns exit code and what was shown as the error."""
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", database())
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    monkeypatch.setattr(Environment, "close", lambda self: self.store.close())

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["factfold", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rebuild", f"{GROUPS}:missing_topic"], ["no.such.topic"]),
        (["rebuild", f"{GROUPS}:unknown_column"], ["statsu", "status"]),
        (["rebuild", f"{GROUPS}:nothing"], ["no projection group 'nothing': it has", "name one of them: "]),
        (["rebuild", "no_such_module:x"], ["no_such_module"]),
        (["verify", f"{GROUPS}:missing_topic"], ["has not been built"]),
    ],
    ids=["missing topic", "unknown column", "unknown group", "unknown module", "not built"],
)
def test_a_command_that_cannot_work_says_why_and_what_to_do(run_command, arguments, words):
    code, shown = run_command("projections", *arguments)
    assert code == 1
    assert "error: " in shown
    assert "remedy: " in shown
    assert "Traceback" not in shown
    for word in words:
        assert word in shown


def test_an_unreachable_broker_is_told_with_its_address(run_command, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    code, shown = run_command("projections", "rebuild", f"{GROUPS}:missing_topic")
    assert code == 1
    assert "127.0.0.1:1" in shown
    assert "remedy: " in shown


def test_an_unreachable_database_of_views_is_told_without_its_password(run_command, monkeypatch):
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", "postgresql+psycopg://someone:sentinel@127.0.0.1:1/views")
    code, shown = run_command("projections", "status")
    assert code == 1
    assert "remedy: " in shown
    assert "sentinel" not in shown


def test_a_refused_rebuild_leaves_no_generation(run_command, database, monkeypatch):
    url = database()
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", url)
    run_command("projections", "rebuild", f"{GROUPS}:unknown_column")
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM factfold.runs")) == 0
    engine.dispose()


def test_a_second_rebuild_is_refused_with_an_exit_code(run_command, database, monkeypatch):
    url = database()
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", url)
    first = PostgresTableStore(url)
    first.prepare()
    with first.exclusive("missing_topic", role=REBUILDER):
        code, shown = run_command("projections", "rebuild", f"{GROUPS}:missing_topic")
    first.close()
    assert code == 1
    assert "another rebuild, cut-over or comparison holds projection group 'missing_topic'" in shown
