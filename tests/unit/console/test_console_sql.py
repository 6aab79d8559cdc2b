"""The box for a query over the views that serve: its rows, why it was refused, and nothing personal."""

from __future__ import annotations

from urllib.parse import urlencode

from factfold.discovery import Definition, Discovery
from tests.rows import each_row
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import SCRIPT
from tests.unit.console.test_console_edges import MEMBERS, NAME, club, opened  # noqa: F401 - a fixture


def ask(browser, text, group="teashop"):
    return browser.page(f"/view?{urlencode({'group': group, 'sql': text})}")


def test_a_query_over_views_is_answered(browser):
    text = "select customer, quantity * 1.5 as n from order_details where note like '%script%'"
    page = ask(browser, text)
    assert cells(page, "#answer") == [[SCRIPT, "750.0"]]
    assert page.css_first("#fresh").attributes["hx-get"] == "/view?group=teashop", "what refreshes asks nothing again"


@each_row(("text", "words"), [
    ("delete from order_details", "no SELECT"),
    ("select * from events", "events is none of the views order_details"),
    ("select load_extension('x') from order_details", "has no LOAD_EXTENSION"),
    ("select missing from order_details", "the database refuses the query: no such column"),
])  # fmt: skip
def test_a_query_that_is_refused_shows_why(browser, text, words):
    page = ask(browser, text)
    assert words in page.css_first(".problem").text()
    assert "write one SELECT over the views" in page.css_first(".problem").text()
    assert page.css_first("#answer") is None


def test_a_view_still_changes_after_a_query(browser):
    ask(browser, "select count(*) from order_details")
    browser.act("/view/pause", group="teashop")
    assert cells(browser.page("/view?group=teashop"), "#generations")[0][1] == "serving, paused"


def test_a_query_reads_masks_in_place_of_personal_values(club):  # noqa: F811 - the fixture
    with opened(club, Discovery(definitions=(Definition("projections", "club:group", MEMBERS),))) as sources:
        page = ask(Browser(sources), "select name, country from members where name <> ''", "club")
    assert cells(page, "#answer") == [["***", "NO"]]
    assert NAME not in page.html


def test_a_group_without_a_definition_has_no_views_to_query(club):  # noqa: F811 - the fixture
    with opened(club, Discovery()) as sources:
        page = ask(Browser(sources), "select country from members", "club")
    assert "none of the" in page.css_first(".problem").text()
    assert NAME not in page.html
