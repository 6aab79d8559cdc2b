"""A console over the tea shop, and what a browser would see of it."""

from __future__ import annotations

import re
import shutil

import pytest
from selectolax.lexbor import LexborHTMLParser as HTMLParser
from starlette.testclient import TestClient

from factfold.cli.definitions import find_definitions
from factfold.console.app import application
from factfold.console.parts import Places
from factfold.console.security import Access
from factfold.console.sources import Sources
from tests.unit.eventstore.fulfilled import fill_with_orders

PORT = 8700
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
TEASHOP = "tests.unit.console.teashop"


class Browser:
    """A client of the console that has opened the printed URL."""

    def __init__(self, sources: Sources, *, allow_actions: bool = True, enter: bool = True) -> None:
        self.access = Access.at(PORT, token="the-token-of-this-test", allow_actions=allow_actions)
        self.sources = sources
        self.app = application(sources, self.access)
        self.client = TestClient(self.app, base_url=ORIGIN, follow_redirects=False)
        if enter:
            assert self.client.get(f"/?token={self.access.token}").status_code == 303

    def page(self, path: str, status: int = 200) -> HTMLParser:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return HTMLParser(answer.text)

    def json(self, path: str):
        answer = self.client.get(path)
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    def act(self, path: str, **fields: str):
        """Send a form as a page of the console does."""
        given = {"csrf": self.access.csrf, **fields}
        return self.client.post(path, data=given, headers={"origin": ORIGIN})


def cells(page: HTMLParser, table: str) -> list[list[str]]:
    """The texts of a table's body, row by row, with single spaces."""
    rows = page.css(f"{table} tbody tr")
    return [[re.sub(r"\s+", " ", cell.text()).strip() for cell in row.css("td, th")] for row in rows]


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """The tea shop's file, filled once."""
    from tests.unit.console.teashop import fill

    path = tmp_path_factory.mktemp("teashop") / "teashop.db"
    fill(path)
    return path


@pytest.fixture
def shop(filled, tmp_path):
    """A file of its own for a test."""
    return shutil.copy(filled, tmp_path / "teashop.db")


@pytest.fixture
def sources(shop):
    """The sources of the tea shop; a page waits as long as it takes."""
    url = f"sqlite:///{shop}"
    opened = Sources(Places(store_url=url, views_url=url), find_definitions([TEASHOP]), every=0.0, patience=30.0)
    yield opened
    opened.close()


@pytest.fixture
def browser(sources):
    return Browser(sources)


@pytest.fixture
def nothing():
    """A browser of a console that nothing is configured for."""
    opened = Sources(Places(), every=0.0, patience=30.0)
    yield Browser(opened)
    opened.close()


@pytest.fixture
def fulfilled(tmp_path):
    """A browser over a store in which o1 waits for its payment, and the compensation of o2 was refused."""
    url = f"sqlite:///{tmp_path}/shop.db"
    fill_with_orders(url)
    found = find_definitions(["tests.unit.eventstore.fulfilment:Fulfilment"])
    with Sources(Places(store_url=url), found, every=0.0, patience=30.0) as opened:
        yield Browser(opened)
