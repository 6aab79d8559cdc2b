"""The console in a real browser: flows over all pages, with JavaScript and without, narrow, light and dark."""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect, sync_playwright

from eventstore import Dispatcher, SqlEventStore, subscription
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.source import StoreSource
from eventstore.delivery import Subscriber
from eventstore.messages import Metadata
from eventstore.processes.engine import ProcessEngine
from eventstore.scheduling import Schedule
from factfold.console.definitions import find_definitions
from factfold.console.server import Server
from factfold.console.sources import Places, Sources
from tests.unit.console.conftest import TEASHOP
from tests.unit.console.stub_connect import StubConnect, connect_worker
from tests.unit.console.teashop import SCRIPT, Order, Payment

CHROMIUM = shutil.which("chromium")
# As root, and without what looks for its maker's servers.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE_MS = 60_000
PAGES = ["/", "/map", "/view", "/view?group=teashop&view=order_details&key.order_id=o2", "/stream",
         "/stream?stream=order-o1&at=1", "/stream?trace=talk", "/connectors", "/connectors?name=orders-cdc",
         "/subscriptions", "/subscriptions?group=reviews", "/subscriptions?process=payment&instance=o1", "/letters",
         "/letters?home=inbox:order:kitchen&do=replay", "/schemas", "/schemas?type=order.placed"]  # fmt: skip
NARROW = 400

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")


@subscription("order", group="kitchen", attempts=1)
def cook(event: Order.Placed, tx: sa.Connection) -> None:
    raise ValueError(f"no tea for {event.quantity}: {SCRIPT}")


@pytest.fixture(scope="module")
def stub():
    found = StubConnect(delay=0.2)
    for name in ("orders-cdc", "customers-cdc"):
        found.add(name, failed=name == "orders-cdc")
    return found


@pytest.fixture(scope="module")
def busy(filled, tmp_path_factory):
    """The tea shop's file with letters, a process that waits, a scheduled command, and a conversation."""
    path = shutil.copy(filled, tmp_path_factory.mktemp("browser") / "teashop.db")
    with SqlEventStore(f"sqlite:///{path}") as store:
        shop = Dispatcher(store)
        shop.with_metadata(Metadata(correlation_id="talk")).send_or_raise("o3", Order.place, customer_id=7, quantity=2)
        with Subscriber(cook, StoreSource(store, cook, category="order"), engine=store.engine) as subscriber:
            subscriber.run_once(timeout=0)
        with Database(store.engine, store.tables).writing() as tx:
            events = list(store.read_stream("order-o1", to_version=0))
            ProcessEngine(store, [Payment]).take_events(tx, events, now=events[0].time)
        Schedule(store).after(timedelta(days=1)).send("o9", Order.place, customer_id=1, quantity=1, note=SCRIPT)
    return path


@contextmanager
def console(busy, stub, *, allow_actions=True):
    """Serve a console; gives the URL to open."""
    stop, url = threading.Event(), f"sqlite:///{busy}"
    with connect_worker(stub) as worker:
        places = Places(store_url=url, views_url=url, connect_url=worker)
        with Sources(places, find_definitions([TEASHOP]), every=0.0, patience=20.0) as sources:
            server = Server(sources, host="127.0.0.1", port=0, allow_actions=allow_actions)
            thread = threading.Thread(target=server.run, args=(stop,))
            thread.start()
            try:
                yield server.url
            finally:
                stop.set()
                thread.join()


@pytest.fixture(scope="module")
def url(busy, stub):
    with console(busy, stub) as opened:
        yield opened


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Seen:
    """What a browser did: the hosts it asked, the dialogs that opened, the errors of its console."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def watch(self, context) -> None:
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("dialog", self._dialog)
        context.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    def _dialog(self, dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def require_loopback(self) -> None:
        hosts = {urlsplit(url).hostname for url in self.requests if not url.startswith("data:")}
        assert self.requests
        assert hosts == {"127.0.0.1"}


@contextmanager
def opened(chromium, url, **options):
    """A page of a new context that has entered; at its end no request left the loopback and nothing complained."""
    context, seen = chromium.new_context(**options), Seen()
    seen.watch(context)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    seen.require_loopback()
    assert seen.complaints == []


@pytest.fixture(params=[True, False], ids=["javascript", "no javascript"])
def page(request, chromium, url):
    with opened(chromium, url, java_script_enabled=request.param) as found:
        yield found


def go(page, path):
    page.goto(f"{origin(page)}{path}")


def origin(page):
    parts = urlsplit(page.url)
    return f"{parts.scheme}://{parts.netloc}"


def outcome(page):
    return page.locator(".outcome")


def test_the_printed_url_opens_the_overview_and_the_token_leaves_the_address(page):
    expect(page.locator("h1")).to_have_text("Overview")
    assert "token" not in page.url
    expect(page.locator("#watched tbody tr").first).to_be_visible()


def test_what_is_red_in_the_overview_leads_to_its_page(page):
    page.click("#watched a:has-text('orders-cdc')")
    expect(page.locator("h1")).to_contain_text("orders-cdc")
    expect(page.locator("#tasks")).to_be_visible()


def test_a_node_of_the_map_leads_to_its_page(page):
    go(page, "/map")
    page.locator("svg.map a[href*='/view?']").last.click()
    expect(page.locator("h1")).to_contain_text("teashop")


def test_a_row_is_explained(page):
    go(page, "/view?group=teashop&view=order_details")
    page.fill("#ask input[name='key.order_id']", "o1")
    page.click("#ask button")
    expect(page.locator("#why tbody tr")).to_have_count(3)
    page.click("#why a")
    expect(page.locator("h1")).to_contain_text("order-o1")


def test_a_view_is_paused_and_resumed(page):
    go(page, "/view?group=teashop&view=order_details")
    page.click("#actions button:text-is('Pause')")
    expect(outcome(page)).to_contain_text("is paused from its next batch on")
    expect(page.locator("#generations")).to_contain_text("serving, paused")
    page.click("#actions button:text-is('Resume')")
    expect(outcome(page)).to_contain_text("goes on")


def test_a_stream_is_found_and_walked_through_version_by_version(page):
    go(page, "/stream")
    page.fill("#search input[name=find]", "order-o1")
    page.click("#search button")
    expect(page.locator("#state .changed")).to_contain_text(["status"])
    page.click("#versions a[rel=prev]")
    assert page.url.endswith("/stream?stream=order-o1&at=0")
    expect(page.locator("#payload")).to_contain_text('"quantity": 3')
    page.click("#versions a[rel=next]")
    expect(page.locator("#payload")).to_contain_text("9.5000")


def test_a_conversation_is_followed_from_an_event(page):
    go(page, "/stream?correlation=talk")
    page.click(".events a")
    page.click("#why a[href*='trace=talk']")
    expect(page.locator("#trace")).to_contain_text("order.placed")


def test_a_connector_is_paused_and_resumed(page):
    go(page, "/connectors?name=customers-cdc")
    page.click("#actions button:text-is('Pause')")
    expect(outcome(page)).to_contain_text("paused customers-cdc: PAUSED, task 0 PAUSED")
    page.click("#actions button:text-is('Resume')")
    expect(outcome(page)).to_contain_text("resumed customers-cdc: RUNNING, task 0 RUNNING")


def test_what_failed_is_restarted_and_says_so(page, stub):
    stub.failed.add("orders-cdc")
    go(page, "/connectors")
    page.click("button:has-text('Restart all that FAILED')")
    expect(outcome(page)).to_contain_text("restarted 1 connectors that had FAILED")
    expect(outcome(page)).to_contain_text("restarted orders-cdc: RUNNING")
    stub.failed.add("orders-cdc")


def test_a_letter_is_edited_compared_and_replayed(page):
    go(page, "/letters")
    page.click("#homes a")
    page.click("#causes th a")
    page.locator("#letters tbody a").first.click()
    payload = re.sub(r'"quantity": \d+', '"quantity": 1', page.input_value("#edit textarea"))
    page.fill("#edit textarea", payload)
    page.click("#edit button:text-is('Compare')")
    expect(outcome(page)).to_contain_text("→ 1")
    page.click("#edit button:text-is('Replay this payload')")
    expect(outcome(page)).to_contain_text("1 replayed")
    expect(page.locator("#done")).to_contain_text("edited")


def test_letters_are_discarded_after_a_preview(page):
    go(page, "/letters?home=inbox:order:kitchen")
    page.click("#causes a:text-is('discard…')")
    expect(page.locator("#preview h2")).to_contain_text("Discard")
    page.click("#preview a:text-is('Cancel')")
    expect(page.locator("#preview")).to_have_count(0)
    expect(page.locator("#causes")).to_be_visible()


def test_an_instance_of_a_process_shows_its_timer_and_its_steps(page):
    go(page, "/subscriptions")
    page.click("#processes a")
    page.click("#instances a")
    expect(page.locator("#due")).to_contain_text("timer payment")
    expect(page.locator("#steps")).to_contain_text("order.placed")
    page.click("#actions button:text-is('Retry')")
    expect(outcome(page)).to_contain_text("retried payment-o1")


def test_a_type_of_event_shows_its_versions(page):
    go(page, "/schemas")
    page.click("#types a:text-is('order.placed')")
    expect(page.locator("section.version")).to_have_count(1)


def test_what_is_new_appears_without_a_reload(chromium, url, busy):
    with opened(chromium, url) as page:
        go(page, "/stream?category=order")
        page.fill("#search input[name=type]", "order.pl")
        with SqlEventStore(f"sqlite:///{busy}") as store:
            Dispatcher(store).send_or_raise("live", Order.place, customer_id=1, quantity=1)
        expect(page.locator(".events")).to_contain_text("order-live@0")
        assert page.input_value("#search input[name=type]") == "order.pl", "what is typed stays"


def test_no_script_of_an_event_or_an_error_runs_and_nothing_complains(chromium, url):
    with opened(chromium, url) as page:
        for path in PAGES:
            go(page, path)
            page.wait_for_function("window.htmx !== undefined")
            assert (page.locator("script").count(), page.locator("h1").count()) == (1, 1), path


def test_every_page_fits_a_narrow_window(chromium, url):
    with opened(chromium, url, viewport={"width": NARROW, "height": 800}) as page:
        for path in PAGES:
            go(page, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, path
            assert page.evaluate("document.body.scrollWidth") <= NARROW, path


CONTRAST = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number)
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor)
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3) } return [255, 255, 255] }
  const found = []
  for (const e of document.querySelectorAll('main *, header *, footer *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || e.closest('svg')) continue
    const [a, b] = [light(numbers(getComputedStyle(e).color).slice(0, 3)), light(ground(e))]
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    if (ratio < 4.5) found.push(`${e.tagName}.${e.className}: ${ratio.toFixed(2)}`)
  }
  return [found, getComputedStyle(document.body).backgroundColor]
}"""  # noqa: E501 - one expression of the browser's


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_light_and_in_dark(chromium, url, scheme):
    with opened(chromium, url, color_scheme=scheme) as page:
        for path in PAGES:
            go(page, path)
            pale, ground = page.evaluate(CONTRAST)
            assert pale == [], path
            assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")


def test_a_read_only_console_has_no_form_that_changes_anything(chromium, busy, stub):
    with console(busy, stub, allow_actions=False) as url, opened(chromium, url) as page:
        for path in PAGES:
            go(page, path)
            assert page.locator("form[method=post]").count() == 0, path


def test_a_page_elsewhere_cannot_act(chromium, url, busy, stub):
    """A form on another origin of the same host: the cookie is not sent, and the origin is another one."""
    with connect_worker(StubConnect()) as elsewhere, opened_without_checks(chromium, url) as page:
        target = f"{origin(page)}/connectors/pause"
        page.goto(elsewhere + "/connectors")
        page.evaluate(
            """([target]) => { const form = document.createElement('form'); form.method = 'post'; form.action = target
            form.innerHTML = '<input name=name value=customers-cdc>'; document.body.append(form); form.submit() }""",
            [target],
        )
        page.wait_for_url(target)
        expect(page.locator("body")).to_contain_text(re.compile("40[13] "))
        assert stub.states["customers-cdc"] == "RUNNING"


@contextmanager
def opened_without_checks(chromium, url):
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
