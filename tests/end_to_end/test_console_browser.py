"""The console in a real browser: what a reader sees, clicks and types, in light and dark, wide and narrow.

With FACTFOLD_PICTURES=folder the pages are kept as pictures, for the documentation.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventstore import SqlEventStore
from eventstore.backends.sql.source import StoreSource
from eventstore.delivery import Subscriber
from factfold.console.pages import PAGES
from tests.unit.console.stub_connect import StubConnect, connect_worker
from tests.unit.console.teashop import SCRIPT, fill
from tests.unit.console.test_console_command import running
from tests.unit.console.test_console_letters import cook

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
PAGE_PATHS = [page.path for page in PAGES]
VIEW = "/view?group=teashop&view=order_details"
SHOWN = {"view": f"{VIEW}&key.order_id=o1", "stream": "/stream?stream=order-o1&at=1",
         "letters": "/letters?home=inbox:order:kitchen"}  # fmt: skip

pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"there is no Chromium at {CHROMIUM}")


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    """The URL of a console over the tea shop that allows actions; with dead letters, and a connector that failed."""
    path = tmp_path_factory.mktemp("browser") / "teashop.db"
    fill(path)
    url = f"sqlite:///{path}"
    with SqlEventStore(url) as store:
        source = StoreSource(store, cook, category="order")
        with Subscriber(cook, source, engine=store.engine) as subscriber:
            subscriber.run_once(timeout=0)
    stub = StubConnect()
    stub.add("teashop_outbox")
    stub.add("teashop_tables", failed=True)
    with connect_worker(stub) as worker:
        given = ("tests.unit.console.teashop", "--store-url", url, "--views-url", url, "--connect-url", worker)
        with running(*given, "--allow-actions") as (_, printed):
            yield printed


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


class Visit:
    """A tab that has opened the printed URL, and everything that it asked for or complained about."""

    def __init__(self, chromium, console, **options):
        self.context = chromium.new_context(base_url=console.partition("/?")[0], **options)
        self.page = self.context.new_page()
        self.hosts, self.complaints = set(), []
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(console)


@pytest.fixture
def visit(chromium, console):
    opened = []

    def open_(**options):
        opened.append(Visit(chromium, console, **options))
        return opened[-1]

    yield open_
    for one in opened:
        one.context.close()


def wait_for(page, text):
    page.get_by_text(text).first.wait_for(timeout=30_000)


def test_the_printed_url_opens_the_overview_and_the_token_leaves_the_address_bar(visit):
    page = visit().page
    assert page.get_by_role("heading", name="Overview").is_visible()
    assert "token" not in page.url


def test_a_second_browser_without_the_token_sees_nothing(chromium, console):
    context = chromium.new_context(base_url=console.partition("/?")[0])
    answer = context.new_page().goto("/")
    assert answer.status == 401
    context.close()


def test_the_overview_leads_to_the_view_that_is_behind_and_to_the_rows_behind_a_row(visit):
    page = visit().page
    wait_for(page, "no process applies changes")
    page.get_by_role("link", name="teashop", exact=True).click()
    page.get_by_role("link", name="why?").last.click()
    page.locator("#why tbody tr").nth(2).wait_for()
    assert "order[0]@" in page.locator("#why").inner_text()


def test_a_key_is_typed_and_explained(visit):
    page = visit().page
    page.goto(VIEW)
    page.get_by_label("order_id").fill("o1")
    page.keyboard.press("Enter")
    assert "Ann" in page.locator("#why").inner_text()


def test_a_view_is_paused_by_its_button_and_resumed(visit):
    page = visit().page
    page.goto(VIEW)
    page.get_by_role("button", name="Pause").click()
    assert "is paused" in page.get_by_role("status").inner_text()
    wait_for(page, "serving, paused")
    page.get_by_role("button", name="Resume").click()
    assert "goes on" in page.get_by_role("status").inner_text()


def test_a_failed_connector_is_restarted_and_the_outcome_is_shown(visit):
    page = visit().page
    page.goto("/connectors?name=teashop_tables")
    wait_for(page, "Connection refused")
    page.get_by_role("button", name="Restart").first.click()
    assert "RUNNING" in page.get_by_role("status").inner_text()


def test_a_stream_is_stepped_through_version_by_version(visit):
    page = visit().page
    page.goto("/stream?stream=order-o1&at=0")
    page.get_by_role("link", name="next →").click()
    assert page.get_by_text("order.paid").first.is_visible()
    assert "at=1" in page.url


def test_dead_letters_are_reached_from_the_overview_and_discarded_after_a_look(visit):
    page = visit().page
    wait_for(page, "order kitchen")
    page.get_by_role("link", name="order kitchen").click()
    page.get_by_role("link", name="discard…").first.click()
    assert page.get_by_role("button").count() >= 1
    page.get_by_role("link", name="Cancel").click()
    assert page.locator("#causes tbody tr").count() == 1


def test_parts_are_refreshed_without_loading_the_page_again(visit):
    opened = visit()
    page = opened.page
    wait_for(page, "no process applies changes")
    page.evaluate("window.stays = true")
    with page.expect_response(lambda answer: urlsplit(answer.url).path == "/", timeout=30_000) as refreshed:
        pass
    assert refreshed.value.request.headers["hx-request"] == "true"
    page.locator("#watched").wait_for()
    assert page.evaluate("window.stays") is True
    assert opened.complaints == []


def test_a_script_in_a_row_is_shown_and_not_run(visit):
    opened = visit()
    opened.page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    opened.page.goto(VIEW)
    assert SCRIPT in opened.page.locator("#rows").inner_text()
    assert opened.complaints == []


def test_everything_works_without_javascript(visit):
    page = visit(java_script_enabled=False).page
    page.goto("/map")
    page.locator("#map a").last.click()
    page.goto(VIEW)
    page.locator("form[action='/view/pause'] button").click()
    assert "is paused" in page.locator(".outcome").inner_text()
    page.locator("form[action='/view/resume'] button").click()
    assert "goes on" in page.locator(".outcome").inner_text()


@pytest.mark.parametrize("path", PAGE_PATHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_a_narrow_screen_in_light_and_dark(visit, path, scheme):
    opened = visit(viewport={"width": 400, "height": 800}, color_scheme=scheme)
    opened.page.goto(path)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 400
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue, *_ = map(int, re.findall(r"\d+", ground))
    assert (red + green + blue < 200) is (scheme == "dark")
    assert opened.complaints == []


@pytest.mark.parametrize("path", PAGE_PATHS)
def test_no_page_asks_another_host(visit, path, console):
    opened = visit()
    opened.page.goto(path)
    opened.page.wait_for_load_state("networkidle")
    assert opened.hosts == {urlsplit(console).netloc}


def test_the_keyboard_reaches_the_content_first_and_shows_where_it_is(visit):
    page = visit().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_json_of_a_page_is_a_link_away(visit):
    page = visit().page
    with page.expect_response("**/api/overview") as answer:
        page.get_by_role("link", name="JSON").click()
    assert "watched" in answer.value.json()


@pytest.mark.skipif("FACTFOLD_PICTURES" not in os.environ, reason="FACTFOLD_PICTURES names no folder for pictures")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_of_the_pages_are_kept(visit, page):
    folder = Path(os.environ["FACTFOLD_PICTURES"])
    opened = visit(viewport={"width": 1100, "height": 700}, color_scheme="light")
    opened.page.goto(SHOWN.get(page.name, page.path))
    opened.page.wait_for_load_state("networkidle")
    opened.page.screenshot(path=folder / f"console-{page.name}.png", full_page=True)
