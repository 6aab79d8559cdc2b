"""Pages of the console, queries over views, and a view with its actions."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlencode

from factfold.cli.show import as_json
from factfold.console.definitions import Definitions
from factfold.console.pages.overview import overview
from factfold.console.pages.schemas import schemas
from factfold.console.pages.stream import streams
from factfold.console.pages.view import views
from projections.declaring.views import InferredReferences, noted_references
from projections.stores.sqlite import SqliteTableStore
from tests.rows import each_row
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import COLUMNS, SCRIPT, group, order_details
from tests.unit.console.test_console_edges import MEMBERS, NAME, opened

VIEW = "/view?group=teashop&view=order_details"
ROWS = [
    ("/view", "#views", ["order_details", "teashop", "1", "2"]),
    (VIEW, "#generations", ["1", "serving", "1", "5", "2", ..., "none"]),  # no runner
    (f"{VIEW}&key.order_id=o2", "#why", ["order_details"]),
    (f"{VIEW}&key.order_id=o2", "#why", ["orders", ..., ..., "order-o2order[0]@2"]),
    (f"{VIEW}&key.order_id=o2", "#why", ["customers", "id = 8", ..., "teashop.public.customers[0]@2"]),
    ("/schemas?type=order.paid", ".fields", ["amount", "decimal(18, 4)"]),
    ("/stream?stream=order-o1&at=1", "#state", ["status", '"paid"', '"placed"']),
    ("/stream?stream=order-o1&at=1", "#state", ["note", '""', ""]),
    ("/stream?stream=order-o1&at=0", "#state", ["status", '"placed"', '"new"']),
    ("/subscriptions", "#subscriptions", ["reviews", "order.large", "3"]),
    ("/subscriptions", "#processes", ["payment"]),
    ("/subscriptions?group=reviews", "#partitions", [..., "3"]),
    ("/map", "#edges", ["aggregate order", "topic order"]),
    ("/map", "#edges", ["topic order", "table teashop.orders", "2"]),
    ("/map", "#edges", ["topic teashop.public.customers", "table teashop.customers", "0"]),
    ("/map", "#edges", ["table teashop.orders", "view order_details"]),
    ("/map", "#edges", ["topic order", "branches order"]),
    ("/map", "#edges", ["branches order", "topic order.large"]),
    ("/map", "#edges", ["topic order.large", "subscription reviews"]),
    ("/map", "#edges", ["topic order", "process payment"]),
]


@each_row(("path", "table", "row"), ROWS)
def test_a_table_has_the_row(browser, path, table, row):
    found = cells(browser.page(path), table)
    assert any(all(want in (..., cell) for want, cell in zip(row, one, strict=False)) for one in found), found


WORDS = [
    ("/", "#empty", "the address of Kafka Connect is not configured"),
    ("/", "#empty", "set connect_url in factfold.toml"),
    (VIEW, "#declared", "tests.unit.console.teashop:group"),
    (VIEW, "#declared", "orders.customer_id → customers"),
    (VIEW, "#declared", "teashop.py:"),
    (VIEW, "#stages", "by id = orders.customer_id"),
    (f"{VIEW}&key.order_id=o99", "#why", "no row of this key"),
    (f"{VIEW}&key.nothing=1", ".problem", "has no key of nothing"),
    (f"{VIEW}&key.nothing=1", ".problem", "give its key: order_id"),
    ("/schemas", "#new", "person.registered, version 1"),
    ("/stream?find=00000000-0000-0000-0000-000000000000", ".problem", "no event has the id"),
    ("/stream?stream=order-o99", ".problem", "has no events here"),
    ("/stream?trace=nothing", ".problem", "no event has the correlation id 'nothing'"),
    ("/subscriptions?group=reviews", "#subscription", "3 records"),
    ("/subscriptions?group=reviews", "body", "factfold events replay"),
]


@each_row(("path", "css", "words"), WORDS)
def test_a_part_says(browser, path, css, words):
    assert words in re.sub(r"\s+", " ", browser.page(path).css_first(css).text())


@each_row(
    ("path", "css", "words"),
    [
        ("/", "body", "set store_url in factfold.toml"),
        ("/", "body", "set views_url in factfold.toml"),
        ("/", "body", "factfold console PACKAGE"),
        ("/map", "body", "factfold console PACKAGE"),
        ("/stream", ".problem", "FACTFOLD_STORE_URL"),
        ("/connectors", ".problem", "FACTFOLD_CONNECT_URL"),
        ("/letters", "body", "No record and no event was given up"),
    ],
)
def test_a_console_without_settings_says_what_to_set(nothing, path, css, words):
    assert words in nothing.page(path).css_first(css).text()


@each_row(
    ("path", "css", "target"),
    [
        (f"{VIEW}&key.order_id=o1", "#why a", "/stream?stream=order-o1"),
        ("/stream?stream=order-o1&at=1", "#versions a[rel=prev]", "/stream?stream=order-o1&at=0"),
        ("/subscriptions?group=reviews", "#subscription a", "/letters?home=inbox%3Aorder.large%3Areviews"),
        ("/map", "#map a", "/view?group=teashop&view=order_details"),
    ],
)
def test_a_link_leads_to(browser, path, css, target):
    assert target in [link.attributes["href"] for link in browser.page(path).css(css)]


@each_row(
    ("path", "status", "words"),
    [
        ("/view?group=nothing", 404, "there is no projection group 'nothing'"),
        ("/view?group=teashop&view=nothing", 404, "has no view 'nothing'"),
        ("/schemas?type=order.nothing", 404, "order.nothing"),
        ("/subscriptions?group=nothing", 404, "choose one of the list"),
        ("/subscriptions?process=nothing", 404, "choose one of the list"),
        ("/letters?home=inbox:order:nothing", 404, "there are no dead letters in"),
        ("/letters?home=../../x", 404, "there are no dead letters in"),
        ("/stream?category=No-such!", 400, "category"),
        ("/stream?since=yesterday", 400, "'yesterday' is no time"),
        ("/stream?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", 400, "swap the two bounds"),
        ("/stream?stream=nodash", 400, "has no dash"),
        ("/stream?stream=order-o1&at=-1", 400, "'-1' is no at"),
        ("/stream?stream=order-o1&at=99999999999999", 400, "is no at"),
        ("/stream?trace=a%0Ab", 400, "cannot be printed"),
    ],
)
def test_what_does_not_exist_or_cannot_be_is_refused(browser, path, status, words):
    assert words in browser.page(path, status).text()
    assert browser.client.get(f"/api{path}").status_code == status


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name != "read_at"}
    return [without_times(one) for one in value] if isinstance(value, list) else value


@each_row(
    ("path", "page", "query", "chosen"),
    [
        ("/api/overview", overview, {}, lambda m: ([one["name"] for one in m["watched"]], m["empty"], set(m))),
        ("/api/schemas", schemas, {"type": "order.placed"}, lambda m: m),
        ("/api/stream", streams, {"stream": "order-o1", "at": "1"}, lambda m: m),
        ("/api/view", views, {"group": "teashop", "view": "order_details", "key.order_id": "o1"},
         lambda m: (m["detail"]["rows"], m["detail"]["why"], m["views"][0].keys())),
    ],
)  # fmt: skip
def test_the_json_of_a_page_is_its_model(browser, sources, path, page, query, chosen):
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    found, model = browser.json(f"{path}?{asked}"), as_json(page(sources.look(), query))
    assert chosen(without_times(found)) == chosen(without_times(model))


# ---- the box for a query over the views that serve


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


def test_a_query_reads_masks_in_place_of_personal_values(club):
    with opened(club, Definitions(groups={"club:group": MEMBERS})) as sources:
        page = ask(Browser(sources), "select name, country from members where name <> ''", "club")
    assert cells(page, "#answer") == [["***", "NO"]]
    assert NAME not in page.html


def test_a_group_without_a_definition_has_no_views_to_query(club):
    with opened(club, Definitions()) as sources:
        page = ask(Browser(sources), "select country from members", "club")
    assert "none of the" in page.css_first(".problem").text()
    assert NAME not in page.html


# ---- a view


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
    unknown = replace(order_details, declared=InferredReferences())
    definitions.groups[target] = replace(group, views=[unknown])
    assert "a rebuild notes them" in browser.page(VIEW).css_first("#declared").text()
    store = SqliteTableStore(shop)
    (state,) = store.states("teashop")
    store.record(store.claim(state.run), built={**state.built, "references": noted_references([order_details])})
    store.close()
    assert "orders.customer_id → customers" in browser.page(VIEW).css_first("#declared").text()
    assert len(cells(browser.page(f"{VIEW}&key.order_id=o1"), "#why")) == 3
