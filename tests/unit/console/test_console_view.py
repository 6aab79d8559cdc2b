"""A view: its generations, its rows, what one of them was made of, and what can be done with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

from projections.declaring.views import Planned, noted_references
from projections.stores.sqlite import SqliteTableStore
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import COLUMNS, SCRIPT, group, order_details

VIEW = "/view?group=teashop&view=order_details"


def test_rows_are_shown_and_a_script_in_them_is_text(browser):
    page = browser.page(VIEW)
    rows = {row[0]: row for row in cells(page, "#rows")}
    assert rows["o1"][:4] == ["o1", "7", "Ann", "3"]
    assert rows["o2"][2] == rows["o2"][4] == SCRIPT
    assert len(page.css("script")) == 1  # that of the layout


def test_a_view_is_paused_and_resumed_and_says_what_happened(browser):
    answer = browser.act("/view/pause", group="teashop", **{"return": "group=teashop&view=order_details"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/view?group=teashop&view=order_details&outcome=")
    page = browser.page(answer.headers["location"])
    assert "generation 1 of teashop is paused" in page.css_first(".outcome").text()
    assert cells(page, "#generations")[0][1] == "serving, paused"
    browser.act("/view/resume", group="teashop")
    assert cells(browser.page(VIEW), "#generations")[0][1] == "serving"


def test_an_action_that_is_refused_shows_cause_and_remedy(browser):
    answer = browser.act("/view/drop", group="teashop", generation="1")
    outcome = browser.page(answer.headers["location"]).css_first(".outcome")
    assert "has no generation 1 that does not serve" in outcome.text()
    assert "remedy: factfold projections status" in outcome.text()


def test_a_generation_that_is_no_number_is_refused(browser):
    answer = browser.act("/view/drop", group="teashop", generation="²")
    assert answer.status_code == 303
    assert "'²' is no generation" in browser.page(answer.headers["location"]).css_first(".outcome").text()


def test_every_action_is_in_the_audit_log(browser, capsys):
    browser.act("/view/pause", group="teashop")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "console.action" in line]
    assert "action=pause" in line
    assert "'group': 'teashop'" in line
    assert "pause" in browser.page("/").css_first("#actions").text()


def test_a_form_without_the_csrf_value_changes_nothing(browser):
    answer = browser.act("/view/pause", csrf="0" * 64, group="teashop")
    assert answer.status_code == 403
    assert cells(browser.page(VIEW), "#generations")[0][1] == "serving"


def test_a_form_that_is_too_large_is_refused(browser):
    assert browser.act("/view/pause", group="x" * 1_300_000).status_code == 403


def test_a_read_only_console_shows_the_command_in_place_of_buttons(sources):
    page = Browser(sources, allow_actions=False).page(VIEW)
    assert page.css("form[method=post]") == []
    assert "factfold projections cutover tests.unit.console.teashop:group" in page.text()


def test_a_rebuild_shows_how_much_of_a_generation_is_loaded(browser, shop):
    store = SqliteTableStore(shop)
    run, _ = store.begin_generation(group, COLUMNS)
    store.record(run, built={"tables": {"orders": {}}, "views": {}})
    store.close()
    rebuild = browser.page(VIEW).css_first("#rebuild")
    assert "generation 2" in rebuild.text()
    assert rebuild.css_first("progress").attributes == {"max": "3", "value": "1"}


def test_a_command_runs_in_a_process_of_its_own_and_shows_its_output(browser):
    from tests.waiting import wait_until

    browser.sources.jobs.start("group teashop", ["--version"])
    wait_until(lambda: browser.sources.jobs.about("group teashop")[0].code == 0)
    job = browser.page(VIEW).css_first(".job")
    assert "factfold --version" in job.text()
    assert "factfold 0." in job.css_first("pre").text()


def test_inferred_references_are_those_that_the_build_noted(shop, browser):
    definitions = browser.sources.definitions
    (target,) = definitions.groups
    unknown = replace(order_details, declared=Planned())
    definitions.groups[target] = replace(group, views=[unknown])
    assert "a rebuild notes them" in browser.page(VIEW).css_first("#declared").text()
    store = SqliteTableStore(shop)
    (state,) = store.states("teashop")
    store.record(store.claim(state.run), built={**state.built, "references": noted_references([order_details])})
    store.close()
    assert "orders.customer_id → customers" in browser.page(VIEW).css_first("#declared").text()
    assert len(cells(browser.page(f"{VIEW}&key.order_id=o1"), "#why")) == 3


def test_a_view_is_looked_back_at_by_the_commands_that_a_person_would_type(browser, monkeypatch):
    started = []
    state = SimpleNamespace(command="factfold …")
    monkeypatch.setattr(browser.sources.jobs, "start", lambda about, words: started.append(words) or state)
    target = next(iter(browser.sources.definitions.groups))
    then, now = (browser.page(f"{VIEW}&ago={ago}").css_first("#moments input").attributes["value"] for ago in (2, 0))
    assert datetime.fromisoformat(now) - datetime.fromisoformat(then) >= timedelta(hours=2)
    assert browser.page(f"{VIEW}&key.order_id=o99").css_first("form[action='/view/missing']")
    which = {"group": "teashop", "view": "order_details"}
    browser.act("/view/at", **which, time=then, where="order_id = 'o1'")
    browser.act("/view/changes", **which, **{"from": f"{then}Z"})
    browser.act("/view/try", **which)
    browser.act("/view/missing", **which, **{"key.order_id": "o99"})
    assert started == [
        ["projections", "at", target, "order_details", f"--time={then}Z", "--where=order_id = 'o1'"],
        ["projections", "diff", target, "order_details", f"--from={then}Z"],
        ["projections", "try", target, "order_details"],
        ["projections", "why", target, "order_details", "order_id=o99", "--missing"],
    ]
    browser.act("/view/at", group="teashop", view="no such view", time=then)
    assert len(started) == 4
