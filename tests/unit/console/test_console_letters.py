"""Dead letters: grouped by cause, looked at, and settled after a preview; what a letter holds runs nowhere."""

from __future__ import annotations

import shutil

import pytest
import sqlalchemy as sa

from eventstore import Dispatcher, SqlEventStore, subscription
from factfold.cli.definitions import find_definitions
from factfold.console.pages import letters as letters_page
from factfold.console.pages.letters import HOMES
from factfold.console.parts import Places
from factfold.console.sources import Sources
from projections import letters as letters_of
from projections.stores.layout import aside_table, generation_name
from projections.stores.sqlite import SqliteTableStore
from tests.unit.console.conftest import TEASHOP, Browser, cells
from tests.unit.console.teashop import SCRIPT, Order
from tests.unit.eventstore.handlers import deliver_stored

HOME = "inbox:order:kitchen"
PAGE = f"/letters?home={HOME}"


@subscription("order", group="kitchen", attempts=1)
def cook(event: Order.Placed, tx: sa.Connection) -> None:
    raise ValueError(f"no tea for {event.quantity}: {SCRIPT}")


@pytest.fixture(scope="module")
def filled(filled, tmp_path_factory):
    """The tea shop's file with three letters of one cause."""
    path = shutil.copy(filled, tmp_path_factory.mktemp("letters") / "teashop.db")
    with SqlEventStore(f"sqlite:///{path}") as store:
        Dispatcher(store).send_or_raise("o3", Order.place, customer_id=9, quantity=1, note=SCRIPT)
        deliver_stored(store, cook, category="order")
    return path


@pytest.fixture
def letters(shop):
    with SqlEventStore(f"sqlite:///{shop}") as store, letters_of(store, "order", group="kitchen") as opened:
        yield opened


def ids(letters):
    return [letter.id for letter in letters.open()]


def outcome(browser, answer):
    assert answer.status_code == 303, answer.text
    return browser.page(answer.headers["location"])


def test_homes_are_listed_with_their_letters_and_main_cause(browser):
    (row,) = cells(browser.page("/letters"), "#homes")
    assert row[:4] == ["kitchen", "order", "inbox", "3"]
    assert "ValueError: no tea for …" in row[4]


def test_a_letter_shows_payload_headers_attempts_and_no_script(browser, letters):
    page = browser.page(f"{PAGE}&id={ids(letters)[1]}")
    assert SCRIPT in page.css_first("#edit textarea").text()
    assert SCRIPT in page.css_first("#letter").text()
    assert len(page.css("script")) == 1
    assert ["ce_subject", "order-o2"] in cells(page, "#headers")
    assert page.css_first("#letter a").attributes["href"].startswith("/stream?find=")


@pytest.mark.parametrize("silent", [{"kafka": True}, {"views_url": "postgresql+psycopg://127.0.0.1:1/views"}])
def test_a_source_that_does_not_answer_hides_no_other_one(shop, monkeypatch, silent):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    places = Places(store_url=f"sqlite:///{shop}", **silent)
    with Sources(places, find_definitions([TEASHOP]), every=0.0, patience=30.0) as sources:
        found = sources.look().part(HOMES)
    assert HOME in [home.key for home in found.value.homes]
    (problem,) = found.value.problems
    assert problem.remedy


def test_a_replay_of_a_cause_shows_first_which_letters_and_then_the_result(browser, letters):
    page = browser.page(PAGE)
    page = browser.page(page.css_first("#causes td:last-child a").attributes["href"])
    assert "Replay 3 of 3 letters" in page.css_first("#preview h2").text()
    assert len(ids(letters)) == 3, "a preview changes nothing"
    form = {one.attributes["name"]: one.attributes["value"] for one in page.css("#preview input[type=hidden]")}
    done = outcome(browser, browser.act("/letters/replay", **form))
    assert "3 replayed" in done.css_first(".outcome").text()
    assert "the group's subscriber handles them" in done.css_first(".outcome").text()
    assert done.css_first("#none")
    assert {row[4] for row in cells(done, "#done")} == {"waiting"}
    assert all("by the console" in row[1] for row in cells(done, "#done"))


def test_a_letter_that_came_after_the_preview_is_left_alone(browser, letters):
    first, *_ = ids(letters)
    outcome(browser, browser.act("/letters/replay", home=HOME, ids=first))
    assert first not in ids(letters)
    assert len(ids(letters)) == 2


def test_letters_that_were_settled_meanwhile_settle_nothing(browser, letters):
    first, second, _ = ids(letters)
    letters.discard([first])
    done = outcome(browser, browser.act("/letters/discard", home=HOME, ids=f"{first} {second}"))
    assert "there is no open dead letter" in done.css_first(".outcome").text()
    assert second in ids(letters)


def test_a_discard_asks_for_the_reason_and_records_it(browser, letters):
    page = browser.page(f"{PAGE}&id={ids(letters)[0]}&do=discard")
    assert "Discard 1 of 3 letters" in page.css_first("#preview h2").text()
    form = {one.attributes["name"]: one.attributes["value"] for one in page.css("#preview input[type=hidden]")}
    done = outcome(browser, browser.act("/letters/discard", **form, why="out of tea"))
    assert "1 discarded" in done.css_first(".outcome").text()
    assert cells(done, "#done")[0][4] == "discarded: out of tea"
    assert len(ids(letters)) == 2


def test_an_edit_is_compared_first_and_then_replayed(browser, letters):
    letter = ids(letters)[0]
    payload = '{"customer_id": 7, "quantity": 2, "note": ""}'
    back = {"return": f"home={HOME}&id={letter}"}
    page = outcome(browser, browser.act("/letters/check", home=HOME, ids=letter, payload=payload, **back))
    assert "quantity: 3 → 2" in page.css_first(".outcome").text()
    assert page.css_first("#edit textarea").text() == payload
    assert page.css_first("#edit button[formaction]").attributes["formaction"] == "/letters/edit"
    assert letter in ids(letters)
    done = outcome(browser, browser.act("/letters/edit", home=HOME, ids=letter, payload=payload, **back))
    assert "1 replayed" in done.css_first(".outcome").text()
    assert "edited" in cells(done, "#done")[0][2]


@pytest.mark.parametrize(("payload", "words"), [
    ("{", "holds no payload in JSON"),
    ('{"customer_id": 7}', "lacks field 'note'"),
    ('{"customer_id": "x", "quantity": 2, "note": ""}', "customer_id"),
])  # fmt: skip
def test_an_edit_that_does_not_fit_is_refused_and_the_letter_stays(browser, letters, payload, words):
    letter = ids(letters)[0]
    done = outcome(browser, browser.act("/letters/edit", home=HOME, ids=letter, payload=payload))
    assert words in done.css_first(".outcome.failed").text()
    assert letter in ids(letters)


def test_a_payload_is_in_no_audit_record(browser, letters, capsys):
    browser.act("/letters/edit", home=HOME, ids=ids(letters)[0], payload='{"secret": 1}')
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "console.action" in line]
    assert "action=edit" in line
    assert HOME in line
    assert '"secret"' not in line


def test_a_read_only_console_shows_letters_and_the_command(sources, letters):
    reader = Browser(sources, allow_actions=False)
    page = reader.page(f"{PAGE}&do=replay")
    assert page.css("form[method=post]") == []
    assert "factfold dlq replay order kitchen --home inbox --all" in page.text()
    assert reader.page(f"{PAGE}&id={ids(letters)[0]}").css_first("#payload")


def test_the_overview_shows_what_is_to_settle_and_leads_to_it(browser):
    page = browser.page("/")
    (row,) = [row for row in cells(page, "#watched") if row[1] == "dead letters"]
    assert (row[0], row[2], row[4]) == ("failed", "order kitchen", "3")
    assert "ValueError: no tea for …" in row[3]
    assert "factfold dlq list order kitchen" in row[3]
    links = [link.attributes["href"] for link in page.css("#watched a") if "/letters" in link.attributes["href"]]
    assert len(cells(browser.page(links[0]), "#causes")) == 1


@pytest.fixture
def set_aside(shop):
    """A record of the topic of orders that the serving generation has set aside."""
    store = SqliteTableStore(shop)
    aside = aside_table(store.dialect.name_space(generation_name("teashop", 1)))
    with store.transaction() as connection:
        aside.create(connection, checkfirst=True)
        record = {"topic": "order", "partition": 0, "offset": 9, "kind": "Undecodable", "message": SCRIPT}
        connection.execute(sa.insert(aside).values(record))
    store.close()
    return "views:order:teashop"


def test_a_record_that_a_projection_set_aside_is_discarded_and_not_replayed(browser, set_aside):
    assert ["teashop", "order", "views", "1"] in [row[:4] for row in cells(browser.page("/letters"), "#homes")]
    preview = browser.page(f"/letters?home={set_aside}&do=replay").css_first("#preview").text()
    assert "There is nothing to replay" in preview
    assert "a rebuild reads it again" in preview
    done = outcome(browser, browser.act("/letters/discard", home=set_aside, ids="0@9"))
    assert "1 discarded" in done.css_first(".outcome").text()
    assert len(done.css("script")) == 1


def test_letters_are_searched_and_shown_page_by_page_and_what_was_searched_is_replayed(browser, letters, monkeypatch):
    monkeypatch.setattr(letters_page, "SHOWN", 2)
    first = browser.page(PAGE)
    second = browser.page(first.css_first("#find ~ .pages a[rel=next]").attributes["href"])
    assert [row[0] for page in (first, second) for row in cells(page, "#letters")] == ids(letters)
    page = browser.page(f"{PAGE}&text=tea+for+500")
    (row,) = cells(page, "#letters")
    assert "500" in row[4]
    assert "Replay 1 of 3" in browser.page(page.css(".pages a")[0].attributes["href"]).css_first("#preview h2").text()
    assert cells(browser.page(f"{PAGE}&text=coffee"), "#letters") == []
