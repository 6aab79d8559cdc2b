"""Pages of a large service answer at once: 1,000 streams, 50 views, 20 connectors; and a slow source holds up none."""

from __future__ import annotations

import time
from threading import Event

import pytest
import responses

from eventstore import NO_STREAM, SqlEventStore
from eventstore.store import StreamAppend
from factfold.console.definitions import Definitions
from factfold.console.pages import PAGES
from factfold.console.pages.overview import WATCHED
from factfold.console.readings.groups import GROUPS
from factfold.console.sources import Places, Reading, Sources
from projections import ProjectionGroup, Table, on, sql_view
from projections.columns import ColumnType
from projections.tablestore.sqlite import SqliteTableStore
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.teashop import Order, Payment, order_branches, review
from tests.waiting import wait_until

WORKER = "http://connect.test:8083"
MOST_SECONDS = 0.3


def large_group(number: int) -> ProjectionGroup:
    """Five views over one table of orders."""
    orders = Table.from_events(Order, key="order_id", columns={"quantity": on(Order.Placed).take("quantity")})
    query = "SELECT order_id, quantity FROM orders"
    views = [sql_view(f"view_{number}_{name}", query, tables={"orders": orders}) for name in range(5)]
    return ProjectionGroup(f"group_{number}", views)


def connectors() -> dict:
    """Twenty connectors as a worker describes them, one of which failed."""
    found = {}
    for number in range(20):
        name, state = f"tables-{number}", "FAILED" if number == 7 else "RUNNING"
        config = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": f"s{number}",
                  "table.include.list": "public.customers", "slot.name": f"slot_{number}"}  # fmt: skip
        task = {"id": 0, "state": state, "worker_id": "w:8083", "trace": "java.lang.RuntimeException: no slot"}
        found[name] = {
            "info": {"name": name, "type": "source", "config": config, "tasks": [{"connector": name, "task": 0}]},
            "status": {"name": name, "connector": {"state": "RUNNING", "worker_id": "w:8083"}, "tasks": [task]},
        }
    return found


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The sources of a large service, everything in one file but the connectors."""
    path = tmp_path_factory.mktemp("large") / "large.db"
    groups = [large_group(number) for number in range(10)]
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        placed = [Order.Placed(customer_id=1, quantity=2, note="x" * 100)]
        store.append_batch([StreamAppend(f"order-{n}", placed, NO_STREAM) for n in range(1_000)])
    views = SqliteTableStore(path)
    views.prepare()
    for group in groups:
        columns = {one.name: {"order_id": ColumnType("string"), "quantity": ColumnType("long")} for one in group.views}
        run, layout = views.begin_generation(group, columns)
        views.index_generation(group, layout)
        views.serve(group, run, layout, {"order": {0: 10}})
    views.close()
    definitions = Definitions(
        groups={f"shop:group_{n}": group for n, group in enumerate(groups)}, branches={"shop:b": order_branches},
        subscriptions={"shop:review": review}, processes={"shop:Payment": Payment}, aggregates={"shop:Order": Order},
    )  # fmt: skip
    url = f"sqlite:///{path}"
    opened = Sources(Places(store_url=url, views_url=url, connect_url=WORKER), definitions)
    yield opened
    opened.close()


QUERIES = {
    "view": ["", "?group=group_3&view=view_3_1", "?group=group_3&view=view_3_1&key.order_id=7"],
    "schemas": ["", "?type=order.placed"],
}
ADDRESSES = [page.path + query for page in PAGES for query in QUERIES.get(page.name, [""])]


@pytest.fixture
def worker():
    """The Connect worker, which answers twenty connectors at once."""
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.get(f"{WORKER}/connectors", json=connectors())
        yield mock


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_page_of_a_large_service_answers_within_its_time(large, worker, path):
    browser = Browser(large)
    browser.page(path)  # what is imported, and compiled, once
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        browser.page(path)
        took.append(time.perf_counter() - begun)
    assert min(took) <= MOST_SECONDS, took


def test_the_overview_of_a_large_service_shows_everything_with_one_request_to_connect(large, worker):
    browser = Browser(large)
    large.forget()
    wait_until(lambda: len(cells(browser.page("/"), "#watched")) == 10 + 20 + 1 + 1 + 1 + 1)
    failed = [row for row in cells(browser.page("/"), "#watched") if row[1] == "connector" and row[0] == "failed"]
    assert [row[2] for row in failed] == ["tables-7"]
    assert "no slot" in failed[0][3]
    assert "factfold cdc restart tables-7" in failed[0][3]
    assert {call.request.path_url for call in worker.calls} == {"/connectors?expand=info&expand=status"}


def test_a_source_that_does_not_answer_holds_up_no_page(large, worker):
    stopped = Event()
    slow = Reading(lambda clients: stopped.wait(30))
    look = large.look()
    begun = time.perf_counter()
    part = look.part(slow)
    assert time.perf_counter() - begun < large.patience + 0.2
    assert (part.value, part.problem.cause) == (None, "the source has not answered yet")
    stopped.set()


def test_parts_are_read_side_by_side(large):
    gate = [Event(), Event()]

    def meet(clients, own, other):
        gate[own].set()
        return gate[other].wait(20)  # in a row, the first would wait for the second for ever

    first, second = Reading(meet).of(0, 1), Reading(meet).of(1, 0)
    look = large.look()
    look.start(first, second)
    assert wait_until(lambda: large.look().part(first).value)
    assert large.look().part(second).value


def test_a_part_is_read_once_however_many_pages_ask(large):
    read = []
    once = Reading(lambda clients: read.append(1) or len(read))
    for _ in range(100):
        assert large.look().part(once).value == 1
    assert read == [1]


def test_the_watched_parts_are_what_the_overview_reads():
    assert GROUPS in WATCHED
