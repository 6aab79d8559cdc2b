"""Parts of pages are read side by side, once and in time, of a large service too."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from http.cookiejar import CookieJar
from threading import Event
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest
import responses
from starlette.testclient import TestClient

from eventstore.personal.sealing import Erased, Sealed
from factfold.console.app import application
from factfold.console.page import Page
from factfold.console.pages.overview import Empty, Overview
from factfold.console.parts import NOT_YET, Places, Trends, direction_of
from factfold.console.rendering import line, pretty
from factfold.console.server import Server
from factfold.console.sources import Reading, Sources
from tests.rows import each_row
from tests.unit.console import large
from tests.unit.console.conftest import ORIGIN, Browser
from tests.unit.console.stub_connect import connect_worker
from tests.waiting import wait_until

WORKER = "http://connect.test:8083"


@pytest.fixture
def slow():
    """Sources with the console's own patience."""
    with Sources(Places(connect_url=WORKER)) as opened:
        yield opened


def test_a_source_that_does_not_answer_holds_up_no_page(slow):
    stopped = Event()
    look = slow.look()
    begun = time.perf_counter()
    part = look.part(Reading(lambda clients: stopped.wait(30)))
    assert time.perf_counter() - begun < slow.patience + 0.2
    assert (part.value, part.problem.cause) == (None, "the source has not answered yet")
    stopped.set()


def test_a_page_with_a_part_that_has_not_answered_is_loaded_again(slow):
    stopped = Event()
    waiting = Reading(lambda clients: stopped.wait(30))
    page = Page("overview", "Overview", lambda look, query: Overview((), (Empty("x", look.part(waiting).problem),), ()))
    browser = Browser(slow)
    client = TestClient(
        application(slow, browser.access, pages=[page]), base_url=ORIGIN, cookies=browser.client.cookies
    )
    assert client.get("/").headers["refresh"] == "1"
    stopped.set()
    assert wait_until(lambda: slow.look().part(waiting).value)
    assert "refresh" not in browser.client.get("/schemas").headers


def test_parts_are_read_side_by_side(slow):
    met = [Event(), Event()]

    def meet(clients, own, other):
        met[own].set()
        return met[other].wait(20)  # one after the other, the first would wait for the second for ever

    first, second = Reading(meet).of(0, 1), Reading(meet).of(1, 0)
    slow.look().start(first, second)
    assert wait_until(lambda: slow.look().part(first).value)
    assert slow.look().part(second).value


def test_a_part_is_read_once_however_many_pages_ask(slow):
    read = []
    once = Reading(lambda clients: read.append(1) or len(read))
    for _ in range(100):
        assert slow.look().part(once).value == 1
    assert read == [1]


def test_a_part_that_fails_later_keeps_its_value_and_says_why():
    answers = [7, RuntimeError("away")]

    def read(clients):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    with Sources(Places(), every=0.0, patience=20.0) as sources:
        reading = Reading(read)
        assert sources.look().part(reading).value == 7
        later = sources.look().part(reading)
    assert (later.value, later.problem.cause) == (7, "reading failed: RuntimeError")


def test_parts_of_single_rows_are_forgotten_when_there_are_many(slow):
    for number in range(1_000):
        slow.look().part(Reading(lambda clients, row: row).of(number))
    assert len(slow._readers) == 500


def test_all_connectors_are_asked_for_by_one_request(slow):
    with responses.RequestsMock() as worker:
        worker.get(f"{WORKER}/connectors", json={})
        browser = Browser(slow)
        wait_until(lambda: "there is no connector" in browser.page("/").text())
        assert [call.request.path_url for call in worker.calls] == ["/connectors?expand=info&expand=status"]


@pytest.mark.parametrize(
    ("samples", "direction"),
    [
        ((), "steady"),
        ((5.0, 90.0), "steady"),
        ((0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0, 9.0), "rising"),
        ((9.0, 9.0, 9.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0), "falling"),
        ((90.0,) * 9 + (0.0,) * 5 + (9.0,) * 5, "steady"),  # it fell, and rises now
        ((0.0, 300.0, 72.0, 72.0), "steady"),  # the line goes back at its end
        ((100.0, 101.0, 99.0, 100.0, 102.0, 101.0, 100.0), "steady"),
    ],
)
def test_a_trend_moves_by_more_than_a_tenth_and_one(samples, direction):
    assert direction_of(samples) == direction


def test_a_trend_of_what_was_never_seen_is_empty():
    trends = Trends()
    trends.note("group shop", None)
    assert trends.of("group shop").samples == ()


@each_row(("value", "text"), [
    ({"due": datetime(2026, 11, 26, 12, tzinfo=UTC), "of": date(2026, 1, 2)},
     '{"due": "2026-11-26 12:00:00.000Z", "of": "2026-01-02"}'),
    ([Decimal("9.5000"), Decimal("1E+3"), 2, None, True], "[9.5000, 1000, 2, null, true]"),
    ({"a": {"b": [{}, []]}, "ü": Erased("x")}, '{"a": {"b": [{}, []]}, "ü": "x"}'),
    ({"name": Sealed(b"secret"), "raw": b"\x01"}, '{"name": "***", "raw": "01"}'),
    ("a\x1b[2J", '"a\\u001b[2J"'),
])  # fmt: skip
def test_values_are_written_as_people_read_them(value, text):
    assert line(value) == text


def test_a_value_on_lines_is_indented():
    assert pretty({"a": [Decimal("1.50")], "b": {}}) == '{\n  "a": [\n    1.50\n  ],\n  "b": {}\n}'


# ---- each page of a large service answers within 300 ms, with everything on it, once the console is warm


LIMIT_SECONDS = 0.3
ASKED = 5
PAGES = {
    "/": large.VIEWS + large.CONNECTORS,
    "/map": large.VIEWS,
    "/view": large.VIEWS,
    "/view?group=group_7&view=orders_7": 20,
    "/schemas": 1,
    "/stream": 50,
    "/stream?stream=order-500&at=9": 10,
    "/connectors": large.CONNECTORS,
    "/connectors?name=connector-3": 1,
    "/subscriptions": 2,
    "/letters": 0,
    "/api/overview": 0,
    "/api/stream": 0,
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """What asks a console of a large service, over the loopback, with the console's own patience."""
    path, declared = tmp_path_factory.mktemp("large") / "shop.db", large.definitions()
    large.fill(path, declared)
    url = f"sqlite:///{path}"
    with connect_worker(large.worker()) as worker:
        places = Places(store_url=url, views_url=url, connect_url=worker)
        with Sources(places, declared, every=0.0) as sources:
            server = Server(sources, host="127.0.0.1", port=0)
            with server.serving():
                yield _opened(server.url)


def _opened(url):
    """A browser's cookie, then one request after the other; gives text and seconds."""
    opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
    opener.open(url, timeout=30).close()
    origin = url.partition("/?")[0]

    def ask(path):
        begin = time.perf_counter()
        with opener.open(origin + path, timeout=30) as answer:
            text = answer.read().decode()
        return text, time.perf_counter() - begin

    return ask


def _crowding():
    """How many times as long everything takes on this machine now: the processes that want a core, by the cores."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_a_large_service_answers_in_time(asked, path, record_property):
    wait_until(lambda: NOT_YET.cause not in asked(path)[0], what=f"{path} complete", pause=0.2)
    text, _ = asked(path)
    assert text.count("<tr") + text.count("<g class") >= PAGES[path]
    times = sorted(asked(path)[1] for _ in range(ASKED))
    record_property("median_ms", round(times[ASKED // 2] * 1000))
    assert times[ASKED // 2] <= LIMIT_SECONDS * _crowding()
