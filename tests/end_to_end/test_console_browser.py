"""The console in a real browser: flows over all pages, with JavaScript and without, narrow, light and dark."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from docs.chromium import EXECUTABLE, NOT_FOUND, REMEDY, chromium
from eventstore import Dispatcher, SqlEventStore
from tests.end_to_end.console_visits import (
    PAGES,
    PATIENCE_MS,
    console,
    fill_busily,
    opened,
    opened_without_checks,
)
from tests.unit.console.stub_connect import StubConnect, connect_worker
from tests.unit.console.teashop import Order

NARROW = 400

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason=f"{NOT_FOUND}: {REMEDY}")


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
    expect(outcome(page)).to_contain_text("restarted 1 of 1 connectors that had FAILED")
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
    expect(outcome(page)).to_contain_text("has nothing to repeat")  # it waits, and has no problem


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


def test_a_second_browser_without_the_token_sees_nothing(chromium, url):
    context = chromium.new_context()
    answer = context.new_page().goto(url.partition("?")[0])
    assert answer.status == 401
    context.close()


def test_parts_are_asked_for_again_without_loading_the_page(chromium, url):
    with opened(chromium, url) as page:
        page.evaluate("window.stays = true")
        with page.expect_response(lambda answer: urlsplit(answer.url).path == "/", timeout=PATIENCE_MS) as refreshed:
            pass
        assert refreshed.value.request.headers["hx-request"] == "true"
        expect(page.locator("#watched")).to_be_visible()
        assert page.evaluate("window.stays") is True


def test_the_keyboard_reaches_the_content_first_and_shows_where_it_is(chromium, url):
    with opened(chromium, url) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_json_of_a_page_is_a_link_away(chromium, url):
    with opened_without_checks(chromium, url) as page:  # a browser asks for an icon of what is no page
        with page.expect_response("**/api/overview") as answer:
            page.get_by_role("link", name="JSON").click()
        assert "watched" in answer.value.json()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_narrow_window_and_every_text_can_be_read(chromium, url, scheme):
    with opened(chromium, url, color_scheme=scheme, viewport={"width": NARROW, "height": 800}) as page:
        for path in PAGES:
            go(page, path)
            pale, ground = page.evaluate(CONTRAST)
            assert pale == [], path
            assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, path


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
