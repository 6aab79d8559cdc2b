"""`factfold projections` without Spark: what asks the views' database alone, and how a run is ended."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest

import sample_app.views
from eventstore import NO_STREAM, Restarts, SqlEventStore
from eventstore.errors import BrokerUnreachable
from factfold.cli.views import generations as cli_generations
from factfold.cli.views import projections as cli_projections
from projections.errors import (
    DefinitionChanged,
    FactfoldError,
    NoServingGeneration,
    ProjectionError,
    TableStoreUnavailable,
)
from projections.lifecycle.follower import Follower
from projections.lifecycle.progress import ProgressMeter, RebuildProgress, counted_once
from projections.lifecycle.rebuild import RebuildReport
from projections.stores.locks import runner_of
from projections.stores.sqlite import SqliteTableStore
from tests.commands import factfold
from tests.conformance.test_generations import built
from tests.conformance.ticket_batches import GROUP, served
from tests.errors import raises
from tests.integration.tickets import Ticket
from tests.rows import each_row
from tests.waiting import wait_until


@pytest.fixture
def store(tmp_path):
    opened = SqliteTableStore(tmp_path / "views.db")
    opened.prepare()
    yield opened
    opened.close()


@pytest.fixture
def projections(store):
    """Run ``factfold projections …``; returns what it printed, or raises what it failed with."""

    def run(*arguments):
        given = ["projections", *arguments, "--views-url", f"sqlite:///{store.path}"]
        result = factfold(*given)
        if isinstance(result.exception, FactfoldError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def generations(store):
    """One that serves and one that served before."""
    first, _ = served(store)
    second, layout = built(store, "a", to=3)
    assert store.switch(GROUP, second, layout)
    return first, second


def test_groups_are_listed_with_what_serves_and_what_is_kept(projections, generations):
    assert projections("list") == "tickets: generation 2 serves; 1 retired\n"
    assert json.loads(projections("list", "--json")) == [{"group": "tickets", "serving": 2, "others": {"1": "retired"}}]


def test_the_status_tells_version_state_progress_pause_and_holder(projections, generations, store):
    projections("pause", "tickets")
    run = store.claim(generations[1])
    with store.exclusive("tickets", role=runner_of(run)):
        lines = projections("status", "tickets").splitlines()
        (_, serving) = json.loads(projections("status", "--json"))
    assert lines[0] == "tickets generation 1 (version 1): retired; 0 offsets applied"
    assert lines[1].startswith("tickets generation 2 (version 1): serving, paused; 3 offsets applied; held by process ")
    assert serving | {"holder": "", "updated_at": ""} == {
        "group": "tickets", "generation": 2, "version": 1, "status": "serving", "paused": True, "holder": "",
        "progress": {"ticket": {"0": 3}}, "deletions_settled": {}, "topics": {}, "loaded": [],
        "final_results": {}, "retained": {},
            "updated_at": "",
    }  # fmt: skip
    assert datetime.fromisoformat(serving["updated_at"]).isoformat(" ") == serving["updated_at"]
    with raises(ProjectionError, code="generation-missing", match="no projection group 'others'"):
        projections("status", "others")


def test_the_status_with_lag_tells_what_waits_in_the_log_of_each_generation(projections, generations, store):
    hours = iter(timedelta(hours=hours) for hours in (5, 4, 3, 2, 1))
    with SqlEventStore(f"sqlite:///{store.path}", clock=lambda: datetime.now(UTC) - next(hours)) as events:
        events.create_tables()
        events.register(Ticket)
        for number in range(5):
            events.append(f"ticket-{number}", [Ticket.Opened(customer_id=1, hours=Decimal(1))], expected=NO_STREAM)
    retired, serving = projections("status", "--lag").splitlines()
    assert "; 0 offsets applied; 6 offsets wait, the oldest record for 18,00" in retired  # positions begin at 1
    assert "; 3 offsets applied; 3 offsets wait, the oldest record for 10,80" in serving
    told = json.loads(projections("status", "--lag", "--json"))
    assert [row["lag"] for row in told] == [{"ticket": 6}, {"ticket": 3}]
    assert [row["lag_seconds"] for row in told] == [pytest.approx(3600 * hours, abs=60) for hours in (5, 3)]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, []),
        ({"upto": None, "forgotten": {}, "set_aside": {"too_late": 1}}, []),
        (
            {"upto": "2026-03-01T12:00:00+00:00", "forgotten": {"a": 1200, "b": 34}, "set_aside": {"too_late": 2}},
            ["1,234 rows forgotten up to 2026-03-01T12:00:00+00:00, 2 events too late for that"],
        ),
    ],
)
def test_the_status_tells_up_to_which_time_rows_are_forgotten(told, words):
    assert cli_generations.forgotten(told) == words


def test_the_lag_of_topics_that_are_not_there_is_an_error_that_names_them(projections, generations):
    with pytest.raises(FactfoldError, match="ticket"):
        projections("status", "--lag")


def test_a_run_is_paused_and_resumed_by_name_or_by_its_definition(projections, generations, store):
    spec = "tests.conformance.ticket_batches:GROUP"
    assert projections("pause", spec) == "tickets: generation 2 is paused\n"
    assert [state.paused for state in store.states("tickets")] == [False, True]
    told = json.loads(projections("resume", "tickets", "--json"))
    assert told == {"group": "tickets", "generation": 2, "paused": False}
    with pytest.raises(NoServingGeneration):
        projections("pause", "others")


def test_generations_are_dropped_and_the_serving_one_is_not(projections, generations):
    with raises(ProjectionError, code="generation-missing"):
        projections("drop", "tickets", "--generation", "2")
    with raises(ProjectionError, code="generation-missing", match="no projection group 'others'"):
        projections("drop", "others")
    assert projections("drop", "tickets") == "dropped: generation 1\n"
    assert json.loads(projections("drop", "tickets", "--json")) == {"group": "tickets", "dropped": []}


def test_a_record_that_two_tables_read_is_done_when_both_have_it():
    assert counted_once({"a": 5, "b": 3, "c": 7}, {"a": "one", "b": "one", "c": "two"}) == 10


def test_progress_tells_rate_and_time_left_of_this_process_alone():
    now = RebuildProgress("tables", records=700, total=1_000, before=200, seconds=5.0)
    assert (now.records_per_second, now.seconds_left) == (100.0, 3.0)
    assert RebuildProgress("plan", 0, 0, 0, 0.0).seconds_left is None


def test_an_observer_is_told_of_each_step_and_of_records_while_they_are_read():
    seen = []
    meter = ProgressMeter(seen.append)
    with meter.step("plan"):
        meter.expect(10, before=2)
    with meter.step("tables"), meter.watched(lambda: 7):
        wait_until(lambda: seen[-1].records == 7, what=lambda: f"7 records in {seen}")
    with meter.step("views"):
        pass
    assert [(one.step, one.records) for one in (seen[0], seen[-1])] == [("plan", 0), ("views", 7)]
    assert ("tables", 2) in [(one.step, one.records) for one in seen]
    assert set(meter.seconds) == {"plan", "tables", "views"}


def test_a_log_has_a_line_a_step_and_no_more_within_ten_seconds(capsys):
    with cli_projections.rebuild_progress("tickets") as told:
        for step, records in (("tables", 0), ("tables", 400), ("views", 1_000)):
            told(RebuildProgress(step, records, 1_000, 0, 2.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["tickets: tables, 0 of 1,000 records", "tickets: views, 1,000 of 1,000 records"]


@pytest.fixture
def running(monkeypatch):
    """Run ``factfold projections run`` over a follower and a rebuild of the test's own; Spark takes SIGINT."""

    @contextmanager
    def opened(*_):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield SimpleNamespace()

    def run(follow, build, *options):
        monkeypatch.setattr(cli_projections, "opened_environment", opened)
        for work in ("run", "catch_up"):
            monkeypatch.setattr(Follower, work, lambda self, *, stop: follow(stop))
        monkeypatch.setattr("projections.rebuild", build, raising=False)
        given = ["projections", "run", "tests.conformance.ticket_batches:GROUP", "--views-url", "sqlite:///views.db"]
        return factfold(*given, *options, catch_exceptions=False)

    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [[], ["--once"]])
def test_either_signal_stops_a_run_behind_its_batch(running, number, options):
    stopped = []

    def follow(stop):
        os.kill(os.getpid(), number)
        stopped.append(stop.wait(5))

    assert running(follow, None, *options).exit_code == 0
    assert stopped == [True]


@each_row(("options", "state"), [([], "following"), (["--once"], "catching up")])
def test_a_run_says_whether_it_follows_or_ends(running, monkeypatch, options, state):
    monkeypatch.setattr(cli_projections.projections, "Follower", lambda **given: opened_alone(given["on_open"]))
    assert running(None, None, *options).stderr == f"{state}\n"
    assert json.loads(running(None, None, *options, "--json").stdout) == {"state": state}


def opened_alone(on_open):
    """A follower that opens a runner, and ends."""

    def work(*, stop):
        on_open(None)

    return SimpleNamespace(run=work, catch_up=work)


def test_either_signal_ends_the_first_build_at_once_and_stops_what_follows_it(running):
    handlers, looks = [], []

    def follow(stop):
        looks.append(signal.getsignal(signal.SIGTERM))
        if len(looks) == 1:
            raise NoServingGeneration("nothing", remedy="build")

    def build(*_, on_progress):
        handlers.append((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)))

    assert running(follow, build).exit_code == 0
    assert handlers == [(signal.default_int_handler, signal.SIG_DFL)]
    assert looks[0] is looks[1] is not signal.SIG_DFL


def test_a_broker_that_is_away_before_the_first_build_is_outwaited_as_it_is_behind_it(running, monkeypatch):
    monkeypatch.setattr(Restarts, "delay", lambda self, failures: 0.0)
    followed, built = [], []

    def follow(stop):
        followed.append(stop)
        if len(followed) == 1:
            raise NoServingGeneration("nothing", remedy="build")

    def build(*_, on_progress):
        built.append(on_progress)
        if len(built) < 3:
            raise BrokerUnreachable("no broker answers", remedy="start it")

    assert running(follow, build).exit_code == 0
    assert (len(built), len(followed)) == (3, 2)


@pytest.mark.parametrize("command", ["verify", "diff", "rollback"])
def test_what_is_not_built_is_told_before_spark_starts(projections, monkeypatch, command):
    monkeypatch.setattr("projections.Environment.embedded", lambda *_, **__: pytest.fail("Spark was started"))
    with pytest.raises(NoServingGeneration, match="has not been built"):
        projections(command, "sample_app.views:shop_views")


def test_a_database_without_views_is_told_from_one_that_fails(tmp_path):
    with closing(sqlite3.connect(tmp_path / "empty.db")) as database:
        database.execute("create table others (id)")
    words = ["projections", "verify", "sample_app.views:shop_views", "--views-url", f"sqlite:///{tmp_path}/empty.db"]
    done = factfold(*words)
    assert isinstance(done.exception, NoServingGeneration)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (GROUP.version - 1, f"start the release that has version {GROUP.version}"),
        (GROUP.version, f"write version={GROUP.version + 1} into the group"),
        (GROUP.version + 1, "rebuild the group"),
    ],
)
def test_another_definition_than_the_one_that_serves_is_told_before_spark_starts(
    projections, generations, monkeypatch, version, remedy
):
    monkeypatch.setattr("projections.Environment.embedded", lambda *_, **__: pytest.fail("Spark was started"))
    changed = dataclasses.replace(sample_app.views.shop_views, name=GROUP.name, version=version)
    monkeypatch.setattr("sample_app.views.shop_views", changed)
    with pytest.raises(DefinitionChanged, match="is not the one its views were built by") as refused:
        projections("verify", "sample_app.views:shop_views")
    assert refused.value.remedy.startswith(remedy)


def test_looking_into_a_file_that_is_not_there_makes_none(tmp_path):
    path = tmp_path / "views.db"
    looked = factfold("projections", "list", "--views-url", f"sqlite:///{path}")
    assert isinstance(looked.exception, TableStoreUnavailable)
    assert not path.exists()


@pytest.fixture
def rebuilding(monkeypatch):
    """Run ``factfold projections rebuild`` over a report of the test's own; returns the result and the choice."""

    @contextmanager
    def opened(*_):
        yield SimpleNamespace()

    def run(report, *options):
        asked = []
        monkeypatch.setattr(cli_projections, "opened_environment", opened)
        monkeypatch.setattr(
            "projections.rebuild", lambda *_, cut_over, on_progress: asked.append(cut_over) or report, raising=False
        )
        given = [
            "projections",
            "rebuild",
            "tests.conformance.ticket_batches:GROUP",
            "--views-url",
            "sqlite:///views.db",
        ]
        return factfold(*given, *options, catch_exceptions=False), asked

    return run


ROWS = dict.fromkeys((view.name for view in GROUP.views), 3)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_rebuild_whose_rows_differ_under_an_unchanged_definition_ends_3(rebuilding, options):
    result, asked = rebuilding(RebuildReport(2, 9, ROWS, withheld=True), *options)
    assert (result.exit_code, asked) == (3, [None])
    if options:
        assert json.loads(result.stdout)["withheld"]
    else:
        assert "the definition is unchanged, and its rows differ" in result.stdout
        assert "factfold projections diff" in result.stdout
        assert "factfold projections cutover" in result.stdout


@pytest.mark.parametrize(("options", "choice"), [([], None), (["--cutover"], True), (["--no-cutover"], False)])
def test_a_rebuild_that_withholds_nothing_ends_0_and_is_told_what_was_chosen(rebuilding, options, choice):
    result, asked = rebuilding(RebuildReport(2, 9, ROWS, serves=choice is not False), *options)
    assert (result.exit_code, asked) == (0, [choice])
