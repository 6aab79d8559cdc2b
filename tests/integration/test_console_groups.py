"""Groups in the console over real brokers: members, a reset after a look, and the dead letters of a topic."""

from __future__ import annotations

import uuid
from threading import Event

import pytest

from eventstore import Settings, run_subscription, subscription
from eventstore.kafka.groups import group_offsets
from eventstore.relay import Relay
from factfold.console.definitions import Definitions
from factfold.console.places import Places
from factfold.console.sources import Sources
from sample_app.background import Background
from tests.crates import Crate, crate_store, fill, topic_of
from tests.unit.console.conftest import Browser, cells
from tests.waiting import wait_until


class Depot:
    """A topic with three events, two subscriptions to it, and a console over both."""

    def __init__(self, topic: str, store_url: str) -> None:
        marker = uuid.uuid4().hex[:8]

        @subscription(topic, group=f"loading-{marker}")
        def load(event: Crate.Filled) -> None: ...

        @subscription(topic, group=f"breaking-{marker}", attempts=1)
        def break_(event: Crate.Filled) -> None:
            raise ValueError(f"crate of {event.grams} g is broken")

        self.topic, self.load, self.break_ = topic, load, break_
        declared = Definitions(subscriptions={"depot:load": load, "depot:break": break_})
        places = Places(store_url=store_url, kafka=True)
        self.sources = Sources(places, declared, every=0.0, patience=60.0)
        self.browser = Browser(self.sources)

    def outcome(self, path: str, **fields: str) -> str:
        answer = self.browser.act(path, **fields)
        assert answer.status_code == 303, answer.text
        return self.browser.page(answer.headers["location"]).css_first(".outcome").text()


@pytest.fixture
def depot(stack, database, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    store_url = database()
    store = crate_store(store_url)
    fill(store, "a", "b", "c")
    assert Relay(store, Settings()).run(stop=Event(), once=True).events == 3
    opened = Depot(topic_of(store), store_url)
    yield opened
    opened.sources.close()
    store.close()


def delivering(declared):
    return Background(lambda stop: run_subscription(declared, stop=stop, settings=Settings()), name=declared.group)


def test_a_group_moves_to_the_offsets_that_its_preview_has_shown(depot):
    page = depot.browser.page(f"/subscriptions?group={depot.load.group}&topic={depot.topic}&to=end")
    moves = {row[0]: row[2] for row in cells(page, "#moves")}
    assert group_offsets(Settings(), depot.topic, group=depot.load.group) == {}, "a preview moves nothing"
    form = {one.attributes["name"]: one.attributes["value"] for one in page.css("#preview input[type=hidden]")}
    assert f"moved in {depot.topic}" in depot.outcome("/subscriptions/reset", **form)
    moved = group_offsets(Settings(), depot.topic, group=depot.load.group)
    assert moves == {f"{depot.topic}[{partition}]": f"{offset:,}" for partition, offset in moved.items()}
    again = depot.browser.page(f"/subscriptions?group={depot.load.group}&topic={depot.topic}&to=beginning")
    assert f"{sum(moved.values())} records come again" in again.css_first("#preview").text()


@pytest.mark.parametrize(("query", "status", "words"), [
    ("to=soon", 400, "'soon' is neither beginning, end, a time"), ("topic=other&to=end", 404, "reads no topic 'other'"),
])  # fmt: skip
def test_a_place_that_is_none_is_refused(depot, query, status, words):
    topic = "" if "topic=" in query else f"&topic={depot.topic}"
    assert words in depot.browser.page(f"/subscriptions?group={depot.load.group}{topic}&{query}", status).text()


def test_members_are_shown_and_a_group_with_members_is_not_moved(depot):
    of_group = f"/subscriptions?group={depot.load.group}"
    assert "No member" in depot.browser.page(of_group).css_first("#members").text()
    with delivering(depot.load).running():
        wait_until(lambda: cells(depot.browser.page(of_group), "#members"), what="a member")
        (member,) = cells(depot.browser.page(of_group), "#members")
        assert f"{depot.topic}[0]" in member[2]
        page = depot.browser.page(f"{of_group}&topic={depot.topic}&to=beginning")
        assert "Stop them first" in page.css_first("#preview").text()
        given = {"group": depot.load.group, "topic": depot.topic, "offsets": "0=0"}
        assert "has 1 members" in depot.outcome("/subscriptions/reset", **given)


def test_letters_of_a_topic_are_shown_and_settled(depot):
    home = f"topic:{depot.topic}:{depot.break_.group}"

    def opened():
        homes = depot.browser.json("/api/letters")["homes"]
        return {one["key"]: one["open"] for one in homes}.get(home)

    with delivering(depot.break_).running():
        wait_until(lambda: opened() == 3, what="three letters")
    page = depot.browser.page(f"/letters?home={home}")
    assert cells(page, "#causes")[0][1].startswith("ValueError: crate of … g is broken")
    first, second, third = (one["id"] for one in depot.browser.json(f"/api/letters?home={home}")["detail"]["letters"])
    letter = depot.browser.page(f"/letters?home={home}&id={first}")
    assert '"grams"' in letter.css_first("#edit textarea").text()
    assert "1 discarded" in depot.outcome("/letters/discard", home=home, ids=first, why="broken for good")
    assert "2 replayed" in depot.outcome("/letters/replay", home=home, ids=f"{second} {third}")
    assert opened() == 0
    done = cells(depot.browser.page(f"/letters?home={home}"), "#done")
    assert {row[4] for row in done} == {"sent", "discarded: broken for good"}
