"""The overview: what is wrong comes first, with its cause and the command to type."""

from __future__ import annotations

from factfold.cli.shown_values import as_json
from factfold.console.pages.overview import overview
from tests.unit.console.conftest import cells


def by_name(page):
    return {row[2]: row for row in cells(page, "#watched")}


def test_what_failed_comes_first_with_cause_and_command(browser):
    page = browser.page("/")
    first = cells(page, "#watched")[0]
    assert first[:3] == ["failed", "group", "teashop"]
    assert "no process applies changes" in first[3]
    assert "factfold projections run tests.unit.console.teashop:group" in first[3]


def test_a_group_shows_what_waits_in_its_log_and_for_how_long(browser):
    row = by_name(browser.page("/"))["teashop"]
    assert row[4] == "2"  # offsets 2 and 3 of the topic of orders
    assert row[5] != "–"


def test_each_kind_that_is_declared_has_its_row(browser):
    rows = by_name(browser.page("/"))
    assert {name: row[1] for name, row in rows.items()} == {
        "teashop": "group", "reviews": "subscription", "order": "branches", "payment": "process",
        "event store": "store",
    }  # fmt: skip


def test_a_subscription_of_the_store_shows_what_waits_for_it(browser):
    assert by_name(browser.page("/"))["reviews"][4] == "3"


def test_a_part_that_is_not_configured_shows_the_setting(browser):
    empty = browser.page("/").css_first("#empty").text()
    assert "the address of Kafka Connect is not configured" in empty
    assert "set connect_url in factfold.toml" in empty


def test_a_console_without_any_setting_shows_what_to_set(nothing):
    page = nothing.page("/")
    assert page.css_first("#watched") is None
    assert "set store_url in factfold.toml" in page.text()
    assert "set views_url in factfold.toml" in page.text()
    assert "factfold console PACKAGE" in page.text()


def test_the_json_of_the_page_is_its_model(browser, sources):
    found = browser.json("/api/overview")
    model = as_json(overview(sources.look(), {}))
    assert [one["name"] for one in found["watched"]] == [one["name"] for one in model["watched"]]
    assert found["empty"] == model["empty"]
    assert set(found) == set(model)
