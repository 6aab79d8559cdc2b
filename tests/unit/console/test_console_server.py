"""The console's server under requests that are never whole: it answers others meanwhile, and lets those go."""

from __future__ import annotations

import http.client
import socket
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from factfold.console import security
from factfold.console import server as console_server
from factfold.console.parts import Places
from factfold.console.server import Server
from factfold.console.sources import Sources
from tests.rows import each_row

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
