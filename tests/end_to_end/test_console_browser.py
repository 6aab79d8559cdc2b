"""The console in a real browser: with JavaScript and without, narrow, light and dark."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from docs.chromium import EXECUTABLE, NOT_FOUND, REMEDY, chromium
from eventstore import Dispatcher, SqlEventStore, subscription
from eventstore.backends.sql.database import Database
from eventstore.processes.engine import ProcessEngine
from eventstore.scheduling import Schedule
from eventstore.store import Metadata
from factfold.cli.definitions import find_definitions
from factfold.console.parts import Places
from factfold.console.server import Server
from factfold.console.sources import Sources
from tests.unit.console.conftest import TEASHOP
from tests.unit.console.stub_connect import StubConnect, connect_worker
from tests.unit.console.teashop import SCRIPT, Order, Payment, fill
from tests.unit.eventstore.handlers import deliver_stored

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason=f"{NOT_FOUND}: {REMEDY}")
NARROW, WIDE = 400, 1280
QUERY = "select+customer,+count(*)+from+order_details+group+by+customer"
PATIENCE_MS = 60_000
PAGES = ["/", "/map", "/view", "/view?group=teashop&view=order_details&key.order_id=o2", "/stream",
         f"/view?group=teashop&sql={QUERY}", "/?kind=group&name=teashop", "/stream?text=tea",
         "/stream?stream=order-o1&at=1", "/stream?trace=talk", "/connectors", "/connectors?name=orders-cdc",
         "/subscriptions", "/subscriptions?group=reviews", "/subscriptions?process=payment&instance=o1", "/letters",
         "/letters?home=inbox:order:kitchen&do=replay", "/letters?home=inbox:order:kitchen",
         "/subscriptions?process=payment",
          "/schemas", "/schemas?type=order.placed"]  # fmt: skip


@subscription("order", group="kitchen", attempts=1)
def cook(event: Order.Placed, tx: sa.Connection) -> None:
    raise ValueError(f"no tea for {event.quantity}: {SCRIPT}")


def fill_busily(path) -> None:
    """The tea shop's file with letters, a process that waits, a scheduled command, and a conversation."""
    fill(path)
    with SqlEventStore(f"sqlite:///{path}") as store:
        shop = Dispatcher(store)
        shop.with_metadata(Metadata(correlation_id="talk")).send_or_raise("o3", Order.place, customer_id=7, quantity=2)
        deliver_stored(store, cook, category="order")
        with Database(store.engine, store.tables).writing() as tx:
            events = list(store.read_stream("order-o1", to_version=0))
            ProcessEngine(store, [Payment]).take_events(tx, events, now=events[0].time)
        Schedule(store).after(timedelta(days=1)).send("o9", Order.place, customer_id=1, quantity=1, note=SCRIPT)


@contextmanager
def console(busy, stub):
    """Serve a console over the shop; gives the URL to open."""
    url, found = f"sqlite:///{busy}", find_definitions([TEASHOP])
    with connect_worker(stub) as worker:
        places = Places(store_url=url, views_url=url, connect_url=worker)
        with Sources(places, found, every=0.0, patience=20.0) as sources:
            server = Server(sources, host="127.0.0.1", port=0, allow_actions=True)
            with server.serving():
                yield server.url


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
    seen = Seen()
    with opened_without_checks(chromium, url, watch=seen.watch, **options) as page:
        yield page
    seen.require_loopback()
    assert seen.complaints == []


@contextmanager
def opened_without_checks(chromium, url, *, watch=lambda context: None, **options):
    """A page of a new context that has entered; `watch` gets the context before it does."""
    context = chromium.new_context(**options)
    watch(context)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    try:
        yield page
    finally:
        context.close()


@pytest.fixture(scope="module")
def stub():
    found = StubConnect(delay=0.2)
    for name in ("orders-cdc", "customers-cdc"):
        found.add(name, failed=name == "orders-cdc")
    return found


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "teashop.db"
    fill_busily(path)
    return path


@pytest.fixture(scope="module")
def url(busy, stub):
    with console(busy, stub) as opened:
        yield opened


@pytest.fixture(scope="module", name="chromium")
def browser():
    with chromium() as found:
        yield found


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


def test_what_is_new_appears_without_a_reload(chromium, url, busy):
    with opened(chromium, url) as page:
        go(page, "/stream?category=order")
        page.fill("#search input[name=type]", "order.pl")
        with SqlEventStore(f"sqlite:///{busy}") as store:
            Dispatcher(store).send_or_raise("live", Order.place, customer_id=1, quantity=1)
        expect(page.locator(".events")).to_contain_text("order-live@0")
        assert page.input_value("#search input[name=type]") == "order.pl", "what is typed stays"


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


def test_the_keyboard_reaches_the_content_first_and_shows_where_it_is(chromium, url):
    with opened(chromium, url) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize(("scheme", "width"), [("light", NARROW), ("dark", NARROW), ("light", WIDE)])
def test_every_page_fits_its_window_every_text_can_be_read_and_no_script_of_an_event_runs(chromium, url, scheme, width):
    with opened(chromium, url, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        for path in PAGES:
            go(page, path)
            page.wait_for_function("window.htmx !== undefined")
            assert (page.locator("script").count(), page.locator("h1").count()) == (1, 1), path
            pale, ground = page.evaluate(CONTRAST)
            assert pale == [], path
            assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_the_map_is_a_drawing_in_a_wide_window_and_a_list_in_a_narrow_one(chromium, url):
    with opened(chromium, url, viewport={"width": WIDE, "height": 800}) as page:
        go(page, "/map")
        box = page.locator("#map").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= WIDE
        expect(page.locator("#nodes")).to_be_hidden()
        page.set_viewport_size({"width": NARROW, "height": 800})
        expect(page.locator("#map")).to_be_hidden()
        expect(page.locator("#nodes li").first).to_be_visible()


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
