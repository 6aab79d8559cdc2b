"""Masked values, faults without words, and commands in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import projections
from eventstore import NO_STREAM, Aggregate, MasterKeys, SqlEventStore, event
from factfold import on_demand
from factfold.cli.definitions import find_definitions
from factfold.cli.views import past as cli_past
from factfold.cli.views import projections as cli_projections
from factfold.console import jobs as jobs_module
from factfold.console.app import application
from factfold.console.jobs import Jobs
from factfold.console.page import Action, Page
from factfold.console.pages.overview import overview
from factfold.console.parts import Places
from factfold.console.sources import Sources
from factfold.discovery import Definition, Discovery
from projections import ProjectionGroup, Table, ViewVerdict, on, sql_view
from projections.declaring.columns import ColumnType
from projections.declaring.group import ERASURES
from projections.lifecycle.cutover import ViewComparison
from projections.lifecycle.rebuild import RebuildReport
from projections.stores.comparison import DifferingRow
from projections.stores.sqlite import SqliteTableStore
from tests.commands import factfold
from tests.unit.console.conftest import ORIGIN, TEASHOP, Browser, cells
from tests.unit.console.teashop import Person
from tests.waiting import wait_until

people = Table.from_events(
    Person, key="person_id", columns={column: on(Person.Registered).take(column) for column in ("name", "country")}
)
members = sql_view("members", "SELECT person_id, name, country FROM people", tables={"people": people}, key="person_id")
MEMBERS = ProjectionGroup("club", [members])
NAME = "Ann Personal"


@pytest.fixture
def club(tmp_path, request):
    """The URL of a file with one person, whose name is open in the view, as its readers see it.

    With the parameter False, the build noted no personal columns, as that of a former release.
    """
    path = tmp_path / "club.db"
    keys = MasterKeys.parse("k1:" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    with SqlEventStore(f"sqlite:///{path}", keys=keys) as store:
        store.create_tables()
        store.append("person-p1", [Person.Registered(name=NAME, country="NO")], expected=NO_STREAM)
    views = SqliteTableStore(path)
    views.prepare()
    kinds = {name: ColumnType("string") for name in ("person_id", "name", "country")}
    run, layout = views.begin_generation(MEMBERS, {"members": kinds})
    if getattr(request, "param", True):
        views.record(run, built={"personal": {"views": {"members": ["name"]}, "tables": {"people": ["name"]}}})
    row = {"person_id": ["p1"], "name": [NAME], "country": ["NO"]}
    at = {"_epoch": [0], "_pos": [1], "_offset": [1], "_deleted": [False]}
    views.target(layout.tables["people"].state).append(pa.table({**row, **at}))
    views.target(layout.views["members"].view).append(pa.table(row))
    views.index_generation(MEMBERS, layout)
    views.serve(MEMBERS, run, layout, {"person": {0: 2}, ERASURES: {0: 0}})
    views.close()
    return f"sqlite:///{path}"


def opened(url, definitions):
    return Sources(Places(store_url=url, views_url=url), definitions, every=0.0, patience=30.0)


VIEW = "/view?group=club&view=members"


def test_the_personal_columns_of_a_view_are_masked_and_no_others(club):
    with opened(club, Discovery(definitions=(Definition("projections", "club:group", MEMBERS),))) as sources:
        browser = Browser(sources)
        page = browser.page(f"{VIEW}&key.person_id=p1")
        assert cells(page, "#rows")[0][:3] == ["p1", "***", "NO"]
        why = cells(page, "#why")
        assert why[0][2] == 'person_id="p1" name="***" country="NO"'
        assert why[1][2] == 'person_id="p1" name="***" country="NO"'
        everything = browser.client.get(f"/api{VIEW}&key.person_id=p1").text
    assert NAME not in page.html
    assert NAME not in everything


@pytest.mark.parametrize(("club", "country"), [(True, "NO"), (False, "***")], indirect=["club"])
def test_what_an_older_definition_marked_as_personal_is_masked_until_a_rebuild(club, country):
    class Person(Aggregate):
        """The person of a later release, whose name is no longer personal."""

        @event
        class Registered:
            name: str
            country: str

    columns = {column: on(Person.Registered).take(column) for column in ("name", "country")}
    tables = {"people": Table.from_events(Person, key="person_id", columns=columns)}
    later = ProjectionGroup(
        "club", [sql_view("members", "SELECT person_id, name, country FROM people", tables=tables, key="person_id")]
    )
    with opened(club, Discovery(definitions=(Definition("projections", "club:group", later),))) as sources:
        browser = Browser(sources)
        page = browser.page(f"{VIEW}&key.person_id=p1")
        assert cells(page, "#rows")[0][:3] == ["p1", "***", country]
        assert cells(page, "#why")[1][2] == f'person_id="p1" name="***" country="{country}"'
        assert NAME not in browser.client.get(f"/api{VIEW}&key.person_id=p1").text


@pytest.mark.parametrize("club", [False], indirect=True)
def test_a_group_without_a_definition_that_follows_erasures_shows_no_value(club):
    with opened(club, Discovery()) as sources:
        page = Browser(sources).page("/view?group=club")
        assert NAME not in page.html
        assert "p1" not in page.html


def test_a_group_without_a_definition_shows_its_rows_and_asks_for_its_package(shop):
    with opened(f"sqlite:///{shop}", Discovery()) as sources:
        browser = Browser(sources)
        page = browser.page("/view?group=teashop&view=order_details&key.order_id=o1")
        assert "o1" in {row[0] for row in cells(page, "#rows")}
        assert "factfold console PACKAGE" in page.text()
        edges = cells(browser.page("/map"), "#edges")
        assert ["topic order", "view order_details"] in [row[:2] for row in edges]


def test_views_in_delta_lake_are_listed_and_the_page_says_where_views_are_stored():
    with opened("delta:/lake/views", find_definitions([TEASHOP])) as sources:
        browser = Browser(sources)
        page = browser.page("/view")
        assert cells(page, "#views")[0][:2] == ["order_details", "teashop"]
        assert "Delta Lake is an output of views" in page.css_first(".problem").text()
        detail = browser.page("/view?group=teashop&view=order_details")
        assert "orders.customer_id → customers" in detail.css_first("#declared").text()
        assert "factfold projections rebuild tests.unit.console.teashop:group" in detail.text()


def test_a_database_that_is_away_breaks_no_page(tmp_path):
    with opened(f"sqlite:///{tmp_path}/nothing.db", find_definitions([TEASHOP])) as sources:
        browser = Browser(sources)
        for path in ("/", "/map", "/view", "/schemas", "/view?group=teashop&view=order_details"):
            assert "there is no such file" in browser.page(path).text()


def test_a_fault_of_a_page_says_nothing_of_its_cause_and_is_in_the_log(nothing, capsys):
    def broken(look, query):
        raise RuntimeError("password=hunter2")

    app = application(nothing.sources, nothing.access, pages=[Page("broken", "Broken", broken)])
    client = TestClient(app, base_url=ORIGIN, raise_server_exceptions=False, cookies=dict(nothing.client.cookies))
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "read the log of factfold console" in answer.text
    assert "hunter2" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_fault_of_an_action_is_an_outcome_without_its_words_and_is_in_the_audit_log(nothing, capsys):
    def broken(sources, fields):
        raise RuntimeError("password=hunter2")

    page = Page("overview", "Broken", overview, {"break": Action(broken)})
    app = application(nothing.sources, nothing.access, pages=[page])
    cookies = dict(nothing.client.cookies)
    nothing.client = TestClient(app, base_url=ORIGIN, cookies=cookies, follow_redirects=False)
    answer = nothing.act("/overview/break")
    assert answer.status_code == 303
    outcome = nothing.page(answer.headers["location"]).css_first(".outcome").text()
    assert "RuntimeError" in outcome
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "action=break" in line]
    assert "done=False" in line
    assert "hunter2" not in outcome + line


def test_a_fault_of_a_source_is_a_problem_without_its_words(nothing):
    from factfold.console.sources import Reading

    def broken(clients):
        raise RuntimeError("password=hunter2")

    part = nothing.sources.look().part(Reading(broken))
    assert part.problem.cause == "reading failed: RuntimeError"


# ---- commands that the console starts


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
        yield SimpleNamespace(spark=None, store=SimpleNamespace(states=lambda _: []))

    monkeypatch.setattr(on_demand, "personal_columns", lambda *_: {"members": {"name"}}, raising=False)
    for module in (cli_projections, cli_past):
        monkeypatch.setattr(module, "opened_environment", no_environment)
    monkeypatch.setattr(cli_projections, "require_same_definition", lambda *given: None)
    monkeypatch.setattr(cli_past, "require_serving", lambda *given: None)
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
