"""The console as an ASGI application: pages, their JSON, their actions, and static files.

Records of actions: a line of the log each, and the last ones in memory for the pages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qsl
from uuid import uuid4

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from eventstore.delivery.source import masked_traceback
from eventstore.errors import FactfoldError, NotFound
from factfold.cli.show import as_json
from factfold.console.page import Action, Outcome, Page, Query
from factfold.console.pages import connectors, letters, overview, preflight, schemas, stream, subscriptions, view
from factfold.console.pages import map as map_page
from factfold.console.pages.overview import WATCHED
from factfold.console.parts import Problem
from factfold.console.rendering import address, environment
from factfold.console.security import CSRF_FIELD, Access, Guard, checked_form, form_fields
from factfold.console.sources import Sources

_log = structlog.get_logger(__name__)

_REMEMBERED: Final = 50


@dataclass(frozen=True, slots=True)
class Record:
    """One action: when, where and on what it was done, and its outcome."""

    id: str
    time: datetime
    page: str
    action: str
    on: Mapping[str, str]
    client: str
    outcome: Outcome


class Audit:
    """Writes each action to the log as `console.action`, and remembers the last ones."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_REMEMBERED)
        self._lock = Lock()

    def note(self, page: str, action: str, *, on: Mapping[str, str], client: str, outcome: Outcome) -> Record:
        """Write an action down."""
        record = Record(uuid4().hex, datetime.now(UTC), page, action, dict(on), client, outcome)
        _log.info(
            "console.action", id=record.id, page=page, action=action, on=dict(on), client=client, done=outcome.done,
            outcome=outcome.text,
        )  # fmt: skip
        with self._lock:
            self._records.appendleft(record)
        return record

    def find(self, id_: str | None) -> Record | None:
        """Return a remembered action, None for another one."""
        with self._lock:
            return next((record for record in self._records if record.id == id_), None)

    @property
    def newest(self) -> tuple[Record, ...]:
        """The last actions, the newest first."""
        with self._lock:
            return tuple(self._records)


# In the order of the navigation. A page is one module, and one name here.
_MODULES: Final = (overview, map_page, view, stream, connectors, subscriptions, letters, schemas, preflight)
PAGES: Final[tuple[Page, ...]] = tuple(module.PAGE for module in _MODULES)

SAMPLE_SECONDS: Final = 10.0  # between two samples of trends while no page is open
_RETURN: Final = "return"  # the field of a form with the query of the page to go back to
_FORGED: Final = Problem(
    "this form was not sent by a page of this start of the console", "open the page again, then send the form"
)


def application(sources: Sources, access: Access, *, pages: Sequence[Page] = PAGES) -> ASGIApp:
    """Build the console over sources; everything behind the guard."""
    shown = _Shown(sources, access, pages)
    routes = [route for page in pages for route in shown.routes(page)]
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(packages=[("factfold.console", "static")]))],
        exception_handlers={HTTPStatus.NOT_FOUND: shown.missing, Exception: shown.broken},
        lifespan=partial(_sampling, sources),
    )
    return Guard(app, access)


@asynccontextmanager
async def _sampling(sources: Sources, app: Starlette) -> AsyncIterator[None]:
    """Read what the overview watches now and then, so that trends are there when a page is opened."""

    async def sample() -> None:
        while True:
            sources.look().start(*WATCHED)
            await asyncio.sleep(SAMPLE_SECONDS)

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()


class _Shown:
    """What the routes answer."""

    def __init__(self, sources: Sources, access: Access, pages: Sequence[Page]) -> None:
        self._sources, self._access, self._pages = sources, access, pages
        self._templates, self._audit = environment(), Audit()

    def routes(self, page: Page) -> list[Route]:
        """The routes of one page."""
        return [
            Route(page.path, self._endpoint(self._page, page), name=page.name),
            Route(f"/api/{page.name}", self._endpoint(self._json, page), name=f"api-{page.name}"),
            *(
                Route(f"/{page.name}/{name}", partial(self._act, page, name, action), methods=["POST"])
                for name, action in page.actions.items()
            ),
        ]

    def _endpoint(self, answer: Callable[[Page, Request], Response], page: Page) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return await run_in_threadpool(answer, page, request)

        return endpoint

    def _page(self, page: Page, request: Request) -> Response:
        query, look = request.query_params, self._sources.look()
        try:
            model = page.model(look, query)
        except FactfoldError as error:
            return self._problem(error, page)
        outcome = self._audit.find(query.get("outcome"))
        answer = self._html(f"{page.name}.html", page=page, model=model, query=query, outcome=outcome)
        if look.pending:  # the browser loads the page again, with or without JavaScript
            answer.headers["refresh"] = "1"
        return answer

    def _json(self, page: Page, request: Request) -> Response:
        try:
            return JSONResponse(as_json(page.model(self._sources.look(), request.query_params)))
        except FactfoldError as error:
            return _as_problem(error)

    async def _act(self, page: Page, name: str, action: Action, request: Request) -> Response:
        fields = await form_fields(request)
        if fields is None or not checked_form(self._access, fields):
            return self._html("problem.html", HTTPStatus.FORBIDDEN, page=page, problem=_FORGED)
        client = request.client.host if request.client else "unknown"
        outcome = await run_in_threadpool(self._done, action, fields)
        on = {field: fields[field] for field in action.audited if field in fields}
        record = self._audit.note(page.name, name, on=on, client=client, outcome=outcome)
        self._sources.forget()
        return RedirectResponse(_back(page, fields, record.id), HTTPStatus.SEE_OTHER)

    def _done(self, action: Action, fields: Query) -> Outcome:
        try:
            return action.run(self._sources, fields)
        except Exception as error:
            if not isinstance(error, FactfoldError):
                _log.warning("console.action_failed", traceback=masked_traceback(error))
            problem = Problem.of(error)
            return Outcome(problem.cause, done=False, details=(f"remedy: {problem.remedy}",))

    def _problem(self, error: FactfoldError, page: Page | None = None) -> Response:
        return self._html("problem.html", _status_of(error), page=page, problem=Problem.of(error))

    async def missing(self, request: Request, error: Exception) -> Response:
        """There is no such page."""
        if request.url.path.startswith("/api/"):
            known = ", ".join(f"/api/{page.name}" for page in self._pages)
            return _as_problem(NotFound("there is no such page", remedy=f"choose one of {known}"))
        return self._problem(NotFound("there is no such page", remedy="choose one of the pages above"))

    async def broken(self, request: Request, error: Exception) -> Response:
        """Something of our own is wrong; its words stay in the log."""
        return self._html("problem.html", HTTPStatus.INTERNAL_SERVER_ERROR, page=None, problem=Problem.of(error))

    def _html(self, template: str, status: HTTPStatus = HTTPStatus.OK, **given: Any) -> Response:
        standing = {"pages": self._pages, "allow_actions": self._access.allow_actions, "csrf": self._access.csrf,
                    "csrf_field": CSRF_FIELD, "return_field": _RETURN, "query": {}, "outcome": None,
                    "actions": self._audit.newest}  # fmt: skip
        return HTMLResponse(self._templates.get_template(template).render(standing | given), status)


def _as_problem(error: FactfoldError) -> JSONResponse:
    return JSONResponse({"problem": as_json(Problem.of(error))}, _status_of(error))


def _status_of(error: FactfoldError) -> HTTPStatus:
    return HTTPStatus.NOT_FOUND if isinstance(error, NotFound) else HTTPStatus.BAD_REQUEST


def _back(page: Page, fields: Query, outcome: str) -> str:
    """The page that a form was on, with the outcome; what the form says is a query and names no other page."""
    try:
        query = dict(parse_qsl(fields.get(_RETURN, ""), max_num_fields=50))
    except ValueError:
        query = {}
    return address(page.path, {**query, "outcome": outcome})
