"""The SQL box: one SELECT over the views that serve; nothing else is read, changed, or waited for."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from factfold.console.definitions import Definitions
from projections.stores import asked_rows
from tests.rows import each_row
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import SCRIPT
from tests.unit.console.test_console_edges import MEMBERS, NAME, club, opened  # noqa: F401 - a fixture


def ask(browser, text, group="teashop"):
    return browser.page(f"/view?{urlencode({'group': group, 'sql': text})}")


ANSWERED = [
    ("SELECT order_id, quantity FROM order_details ORDER BY order_id DESC", [["o2", "500"], ["o1", "3"]]),
    ("select count(*) as n, sum(d.quantity) total from order_details as d;", [["2", "503"]]),
    ("select customer from order_details where note like '%script%'", [[SCRIPT]]),
    ("select a.order_id from order_details a join order_details b on a.quantity < b.quantity", [["o1"]]),
    ("select x.k from (select order_details.order_id as k from order_details) x order by 1", [["o1"], ["o2"]]),
    ("select order_id from order_details union select upper('z') order by 1 limit 1", [["Z"]]),
]


@each_row(("text", "rows"), ANSWERED)
def test_a_query_over_views_is_answered(browser, text, rows):
    assert cells(ask(browser, text), "#answer") == rows


REFUSED = [
    ("delete from order_details", "no SELECT"),
    ("select 1; select 2", "not one query"),
    ("select * from events", "events is none of the views order_details"),
    ("select * from sqlite_master", "none of the views"),
    ("select * from main.order_details", "none of the views"),
    ("select * from (select * from events) x", "none of the views"),
    ("select (select max(data) from events) from order_details", "none of the views"),
    ("select * from order_details where exists (select 1 from events)", "none of the views"),
    ("select * from order_details union select * from events", "none of the views"),
    ("with order_details as (select * from events) select * from order_details", "has no WITH"),
    ("select load_extension('x') from order_details", "has no LOAD_EXTENSION"),
    ("select randomblob(1000000000)", "has no RANDOMBLOB"),
    ("select * from json_each('[1]')", "has no JSON_EACH"),
    ("select * from pragma_table_info('events')", "has no PRAGMA_TABLE_INFO"),
    ("select ? from order_details", "has no ?"),
    ("select missing from order_details", "the database refuses the query: no such column"),
    ("attach 'x.db' as y", "no SELECT"),
    ("pragma query_only = off", "no SELECT"),
    ("select", "refuses"),
    ("((((", "not one query"),
    ("select " + "(" * 3000 + "1", "not one query"),
]


@each_row(("text", "words"), REFUSED)
def test_what_is_no_query_over_views_is_refused(browser, text, words):
    page = ask(browser, text)
    assert words in page.css_first(".problem").text()
    assert page.css_first("#answer") is None


def test_a_query_ends_after_its_time_and_the_connection_is_as_before(browser, monkeypatch):
    monkeypatch.setattr(asked_rows, "_SECONDS", 0.2)
    crossed = ", ".join(f"order_details d{number}" for number in range(24))
    assert "interrupted" in ask(browser, f"select count(*) from {crossed}").css_first(".problem").text()
    assert cells(ask(browser, "select count(*) from order_details"), "#answer") == [["2"]]
    browser.act("/view/pause", group="teashop")
    assert cells(browser.page("/view?group=teashop"), "#generations")[0][1] == "serving, paused"


@pytest.mark.parametrize(
    ("definitions", "words"),
    [(Definitions(groups={"club:group": MEMBERS}), "members reads personal columns"), (Definitions(), "none of the")],
)
def test_a_view_that_reads_personal_columns_is_refused(club, definitions, words):  # noqa: F811 - the fixture
    with opened(club, definitions) as sources:
        page = ask(Browser(sources), "select country from members", "club")
    assert words in page.css_first(".problem").text()
    assert NAME not in page.html
