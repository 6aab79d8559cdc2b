"""Access to the console: first a token, then a cookie. Only known hosts, and only forms of its own pages.

Every answer carries headers that let a page load nothing from elsewhere, run no inline script and stand in no frame.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
CSRF_FIELD: Final = "csrf"
BODY_SECONDS: Final = 10.0  # for a form to come
MOST_BYTES: Final = 1_200_000  # of a form: an event of the largest size, edited, and its form's escapes

_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it browsers send forms with "Origin: null", which says nothing. Other hosts get nothing.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """The secrets of one start of the console; `hosts` are the values of the header Host that it answers to."""

    token: str
    hosts: frozenset[str]
    allow_actions: bool = False
    cookie: str = field(init=False)

    def __post_init__(self) -> None:
        ports = sorted({host.rpartition(":")[2] for host in self.hosts})
        # Cookies are shared by all ports of a host, so two consoles need two names.
        object.__setattr__(self, "cookie", f"factfold_console_{'_'.join(ports)}")

    @staticmethod
    def at(port: int, *, token: str, also: Iterable[str] = (), allow_actions: bool = False) -> Access:
        """Answer at a port of the loopback, and to further hosts, such as `console.internal:8443`."""
        hosts = frozenset({*(f"{host}:{port}" for host in LOOPBACK), *(host.lower() for host in also)})
        return Access(token, hosts, allow_actions)

    @property
    def session(self) -> str:
        """The value of the cookie: it opens pages, and the token cannot be computed from it."""
        return self._derived("session")

    @property
    def csrf(self) -> str:
        """The value that a form of our own pages carries."""
        return self._derived("csrf")

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Passes a request on, or refuses it; adds the headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, sending)

    def _answer(self, request: Request) -> Response | None:
        """A refusal, or the cookie for the right token; None lets the request pass."""
        if request.headers.get("host", "").lower() not in self._access.hosts:
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, "this console does not answer to that host name")
        if "token" in request.query_params and request.method == "GET":
            return self._entered(request)
        if not _same(request.cookies.get(self._access.cookie, ""), self._access.session):
            return _refused(HTTPStatus.UNAUTHORIZED, "open the URL that factfold console printed, with its token")
        return None if request.method in ("GET", "HEAD") else self._of_a_form(request)

    def _entered(self, request: Request) -> Response:
        if not _same(request.query_params["token"], self._access.token):
            return _refused(HTTPStatus.UNAUTHORIZED, "this token is not the one of this start of factfold console")
        answer = RedirectResponse(_without_token(request), HTTPStatus.SEE_OTHER)
        secure = request.url.scheme == "https"  # of the connection: anyone can send x-forwarded-proto
        answer.set_cookie(
            self._access.cookie, self._access.session, httponly=True, samesite="strict", path="/", secure=secure
        )
        return answer

    def _of_a_form(self, request: Request) -> Response | None:
        if not self._access.allow_actions:
            return _refused(HTTPStatus.FORBIDDEN, "this console is read-only: start it with --allow-actions")
        if not self._is_own(request.headers):
            return _refused(HTTPStatus.FORBIDDEN, "this form was not sent by a page of this console")
        return None

    def _is_own(self, headers: Headers) -> bool:
        """A browser names the origin of every form; what names none is no browser, or hides where it is."""
        origin = urlsplit(headers.get("origin", ""))
        same_host = origin.scheme in ("http", "https") and origin.netloc.lower() == headers["host"].lower()
        return same_host and headers.get("sec-fetch-site", "same-origin") == "same-origin"


def checked_form(access: Access, fields: Mapping[str, str]) -> bool:
    """Whether a form carries the value that only our own pages know."""
    return _same(fields.get(CSRF_FIELD, ""), access.csrf)


async def form_fields(request: Request) -> dict[str, str] | None:
    """Read the fields of a form of a bounded size that comes in time, None for anything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    return None
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200))
    except (ValueError, TimeoutError):
        return None


def _without_token(request: Request) -> str:
    """The same address without the token; one slash before it, since two would name another host."""
    path = "/" + quote(request.url.path.lstrip("/\\"), safe="/")
    query = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
    return f"{path}?{query}" if query else path


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _refused(status: HTTPStatus, why: str) -> PlainTextResponse:
    return PlainTextResponse(f"{status.value} {status.phrase}: {why}\n", status)
