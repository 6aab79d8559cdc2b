"""Strangers, forms of other sites, and requests that do not end."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import socket
from collections import Counter
from contextlib import ExitStack, closing
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from factfold.console import security
from factfold.console import server as console_server
from factfold.console.parts import Places
from factfold.console.server import Server
from factfold.console.sources import Sources
from tests.rows import each_row
from tests.unit.console.conftest import HOST, ORIGIN, PORT, Browser

PAGES = ["/", "/map", "/view", "/view?group=teashop&view=order_details&key.order_id=o2", "/schemas",
         "/schemas?type=order.placed", "/stream", "/stream?stream=order-o2&at=0", "/connectors", "/letters",
         "/subscriptions", "/subscriptions?group=reviews", "/subscriptions?process=payment", "/preflight"]  # fmt: skip
STATIC = files("factfold.console") / "static"


@pytest.fixture
def stranger(sources):
    """A browser that has not opened the printed URL."""
    return Browser(sources, enter=False)


@pytest.mark.parametrize("path", ["/", "/map", "/api/overview", "/static/console.css", "/nothing"])
def test_without_the_token_nothing_is_shown(stranger, path):
    answer = stranger.client.get(path)
    assert answer.status_code == 401
    assert "factfold console printed" in answer.text


@pytest.mark.parametrize("token", ["", "wrong", "the-token-of-this-tesT", "ü"])
def test_a_wrong_token_opens_nothing(stranger, token):
    answer = stranger.client.get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_and_leaves_the_address(stranger):
    answer = stranger.client.get("/map", params={"token": stranger.access.token, "group": "a b"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/map?group=a+b")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert stranger.access.token not in cookie


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_cookie_that_came_by_tls_goes_by_tls_only(stranger, scheme):
    address, headers = f"{scheme}://{HOST}/", {"x-forwarded-proto": "https"}
    answer = stranger.client.get(address, params={"token": stranger.access.token}, headers=headers)
    assert ("secure" in answer.headers["set-cookie"].lower()) == (scheme == "https")


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example"])
def test_the_token_leads_to_no_other_host(stranger, path):
    answer = stranger.client.get(f"{ORIGIN}{path}", params={"token": stranger.access.token})
    location = answer.headers["location"]
    assert location.startswith("/")
    assert location[1:2] not in ("/", "\\")


def test_a_cookie_of_another_start_opens_nothing(stranger):
    stranger.client.cookies.set(stranger.access.cookie, "0" * 64)
    assert stranger.client.get("/").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""])
def test_another_host_name_is_refused(browser, host):
    assert browser.client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", [f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"])
def test_each_name_of_the_loopback_is_answered(browser, host):
    headers = {"host": host, "cookie": f"{browser.access.cookie}={browser.access.session}"}
    assert browser.client.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/map", "/static/console.css", "/nothing"])
def test_every_answer_forbids_scripts_frames_and_other_hosts(browser, path):
    headers = browser.client.get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_inline_script_no_inline_style_and_no_address_elsewhere(browser, path):
    page = browser.page(path)
    assert [script.attributes["src"] for script in page.css("script")] == ["/static/htmx-2.min.js"]
    assert page.css("style") == []
    assert [node.tag for node in page.css("*") if "style" in node.attributes] == []
    given = [node.attributes.get(name) or "" for node in page.css("*") for name in ("href", "src", "action")]
    assert [one for one in given if one and not one.startswith(("/", "#", "data:,"))] == []


def test_what_is_no_page_is_not_found(browser):
    assert "there is no such page" in browser.page("/nothing", 404).text()
    assert browser.client.get("/static/../app.py").status_code == 404


def test_what_is_no_page_of_the_json_is_a_problem_in_json(browser):
    answer = browser.client.get("/api/nothing")
    assert answer.status_code == 404
    assert answer.json()["problem"]["cause"] == "there is no such page"
    assert "/api/overview" in answer.json()["problem"]["remedy"]


def test_a_form_is_refused_while_the_console_is_read_only(sources):
    reader = Browser(sources, allow_actions=False)
    answer = reader.act("/map/anything")
    assert answer.status_code == 403
    assert "--allow-actions" in answer.text


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://evil.example"}, {"origin": f"http://{HOST}.evil.example"}, {"origin": "null"},
     {"origin": f"http://localhost:{PORT}"}, {"origin": ORIGIN, "sec-fetch-site": "cross-site"}],
)  # fmt: skip
def test_a_form_of_another_origin_is_refused(browser, headers):
    answer = browser.client.post("/map/anything", data={"csrf": browser.access.csrf}, headers=headers)
    assert answer.status_code == 403
    assert "was not sent by a page of this console" in answer.text


def test_ten_thousand_strangers_are_refused_and_leave_nothing(stranger):
    readers = len(stranger.sources._readers)
    statuses = asyncio.run(_asked(stranger.app, (f"token=guess-{number}" for number in range(10_000))))
    assert statuses == {401: 10_000}
    assert len(stranger.sources._readers) == readers
    stranger.client.get("/", params={"token": stranger.access.token})
    assert stranger.client.get("/").status_code == 200


async def _asked(app, queries):
    """The statuses of requests for the overview, counted; by the interface that a server has, which is quicker."""
    found = Counter()

    async def send(message):
        if message["type"] == "http.response.start":
            found[message["status"]] += 1

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    for query in queries:
        scope = {"type": "http", "method": "GET", "path": "/api/overview", "query_string": query.encode(),
                 "headers": [(b"host", HOST.encode())], "scheme": "http", "server": ("127.0.0.1", PORT)}  # fmt: skip
        await app(scope, receive, send)
    return found


def test_the_vendored_script_is_the_one_of_its_checksum():
    expected, name = (STATIC / "htmx.sha256").read_text("utf-8").split()
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == expected
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE.txt").read_text("utf-8")


# ---- the console's server under requests that are never whole


HALF = "GET / HTTP/1.1\r\nHost: {host}\r\nX-Slow: "
BODILESS = "POST /view/pause HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n{more}\r\nabc"
FORM = "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://{host}\r\nCookie: {cookie}\r\n"


@pytest.fixture
def served():
    """A server of its own, and the cookie of a browser that has entered."""
    with Sources(Places(), every=0.0, patience=5.0) as sources:
        server = Server(sources, host="127.0.0.1", port=0, allow_actions=True)
        with server.serving():
            parts = urlsplit(server.url)
            status, headers = asked(parts, f"/?{parts.query}")
            assert status == 303
            yield parts, headers["set-cookie"].partition(";")[0]


def asked(parts, path, **headers):
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)) as connection:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as answer:
            answer.read()
            return answer.status, dict(answer.getheaders())


def sent(opened, parts, text):
    connection = opened.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=5))
    connection.sendall(text.encode())
    return connection


@each_row("text", [HALF, "", BODILESS.replace("{more}", "")])
def test_a_hundred_requests_that_are_never_whole_keep_no_browser_out(served, text):
    parts, cookie = served
    with ExitStack() as opened:
        for _ in range(100):
            sent(opened, parts, text.format(host=parts.netloc))
        assert asked(parts, "/", Cookie=cookie)[0] == 200


@pytest.mark.parametrize("first", ["", "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"], ids=["new", "used before"])
def test_headers_that_do_not_end_end_the_connection(served, monkeypatch, first):
    parts, _ = served
    monkeypatch.setattr(console_server, "HEADERS_SECONDS", 0.3)
    with ExitStack() as opened:
        connection = sent(opened, parts, (first + HALF).format(host=parts.netloc))
        while connection.recv(4096):
            pass  # the answer to the first one, then the end


def test_a_stranger_is_refused_before_its_form_has_come(served):
    parts, _ = served
    with ExitStack() as opened:
        connection = sent(opened, parts, BODILESS.format(host=parts.netloc, more=""))
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_a_form_that_does_not_come_whole_is_refused(served, monkeypatch):
    parts, cookie = served
    monkeypatch.setattr(security, "BODY_SECONDS", 0.3)
    with ExitStack() as opened:
        form = FORM.format(host=parts.netloc, cookie=cookie)
        connection = sent(opened, parts, BODILESS.format(host=parts.netloc, more=form))
        assert connection.recv(4096).startswith(b"HTTP/1.1 403 ")
