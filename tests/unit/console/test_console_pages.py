"""The pages of the tea shop as tables: what a page shows, where it leads, what it refuses, and its JSON."""

from __future__ import annotations

import re

from factfold.cli.show import as_json
from factfold.console.pages.overview import overview
from factfold.console.pages.schemas import schemas
from factfold.console.pages.stream import streams
from factfold.console.pages.view import views
from tests.rows import each_row
from tests.unit.console.conftest import cells

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
