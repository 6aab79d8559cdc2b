"""Events, streams and the schemas of their types."""

from __future__ import annotations

import enum
import os
from types import SimpleNamespace

import pytest

from eventstore import NO_STREAM, Aggregate, Dispatcher, MasterKeys, RecordedEvent, SqlEventStore, event, subscription
from eventstore.fields.field_compilation import compile_hints
from eventstore.store import Metadata
from factfold.cli.definitions import find_definitions
from factfold.console.pages import stream as readings
from factfold.console.pages.schemas import _changes, said
from factfold.console.pages.stream import EVENTS_SHOWN, steps
from factfold.console.parts import Places
from factfold.console.sources import Sources
from tests.unit.console.conftest import TEASHOP, Browser, cells
from tests.unit.console.teashop import SCRIPT, Order, Person


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@pytest.fixture
def store(shop):
    with SqlEventStore(f"sqlite:///{shop}") as opened:
        yield opened


def test_the_newest_events_come_first(browser):
    rows = cells(browser.page("/stream"), ".events")
    assert [row[2] for row in rows] == ["order-o2@0", "order-o1@1", "order-o1@0"]
    assert rows[1][1] == "order.paid"
    assert rows[1][3] == "amount=9.5000"


@pytest.mark.parametrize(("query", "places"), [
    ("type=order.paid", ["order-o1@1"]),
    ("category=order", ["order-o2@0", "order-o1@1", "order-o1@0"]),
    ("category=person", []),
    ("since=1h", ["order-o2@0", "order-o1@1", "order-o1@0"]),
    ("until=2020-01-01T00:00:00Z", []),
])  # fmt: skip
def test_a_search_leaves_out_what_it_does_not_name(browser, query, places):
    assert [row[2] for row in cells(browser.page(f"/stream?{query}"), ".events")] == places


def test_a_stream_is_found_by_its_name_its_place_and_the_id_of_an_event(browser, store):
    event = next(store.read_stream("order-o1", from_version=1))
    for typed in ("order-o1", "order-o1@1", str(event.id)):
        page = browser.page(f"/stream?find={typed}")
        assert "version 1 of 1" in page.css_first("#versions").text()
        assert page.css_first("h2").text().startswith("order.paid")


def test_a_version_shows_its_payload_and_who_caused_it(browser, store):
    page = browser.page("/stream?stream=order-o2&at=0")
    assert page.css_first("#payload").text().count(SCRIPT) == 1
    assert len(page.css("script")) == 1
    event = next(store.read_stream("order-o2"))
    why = page.css_first("#why").text()
    assert str(event.id) in why
    assert event.position.text in why


def test_a_long_stream_is_shown_in_bounded_parts(browser, store):
    shop = Dispatcher(store)
    for number in range(EVENTS_SHOWN + 30):
        shop.send_or_raise("long", Order.place, customer_id=1, quantity=number)
    assert len(cells(browser.page("/stream?stream=order-long"), ".events")) == EVENTS_SHOWN
    newest = cells(browser.page("/stream?stream=order-long&at=5"), ".events")[0]
    assert newest[2] == f"@{5 + EVENTS_SHOWN // 2}"
    page = browser.page("/stream?category=order")
    older = page.css_first("a[rel=next]").attributes["href"]
    first, second = cells(page, ".events"), cells(browser.page(older), ".events")
    assert len(first) == EVENTS_SHOWN
    assert [row[2] for row in first + second].count(f"order-long@{30}") == 1
    assert len(second) == 33


def test_steps_are_near_and_far_and_none_twice():
    assert steps(0, 0) == (0,)
    assert steps(1000, 500) == (0, 400, 490, 497, 498, 499, 500, 501, 502, 503, 510, 600, 1000)


def test_a_conversation_shows_each_step_below_its_cause(browser, store):
    shop = Dispatcher(store)
    first = shop.with_metadata(Metadata(correlation_id="talk-1"))
    first.send_or_raise("t1", Order.place, customer_id=1, quantity=1)
    event = next(store.read_stream("order-t1"))
    shop.with_metadata(event.caused()).send_or_raise("t2", Order.place, customer_id=1, quantity=1)
    steps = browser.page("/stream?trace=talk-1").css("#trace li")
    places = {step.css_first("a").text(): step.attributes["class"] for step in steps if step.css("a")}
    depths = {place: int(depth.removeprefix("depth-")) for place, depth in places.items()}
    assert list(depths) == ["order-t1@0", "order-t2@0"]
    assert depths["order-t1@0"] < depths["order-t2@0"]
    link = browser.page("/stream?stream=order-t2").css_first("#why a").attributes["href"]
    assert link == "/stream?trace=talk-1"
    assert len(cells(browser.page("/stream?correlation=talk-1"), ".events")) == 2


@pytest.mark.parametrize(("events", "shown", "more"), [(2, 2, False), (3, 2, True)])
def test_a_conversation_says_that_it_has_more_only_if_it_has(browser, store, monkeypatch, events, shown, more):
    monkeypatch.setattr(readings, "TRACED", 2)
    talk = Dispatcher(store).with_metadata(Metadata(correlation_id="talk-2"))
    for number in range(events):
        talk.send_or_raise(f"m{number}", Order.place, customer_id=1, quantity=1)
    trace = browser.json("/api/stream?trace=talk-2")["trace"]["value"]
    assert trace["more"] == more
    assert len([step for step in trace["steps"] if step["kind"] == "event"]) == shown


def test_a_personal_value_is_masked_everywhere(browser, shop):
    with SqlEventStore(f"sqlite:///{shop}", keys=MasterKeys({"one": os.urandom(32)})) as store:
        event = Person.Registered(name="Ann Secret", country="NL")
        store.register(Person)
        store.append("person-p1", [event], expected=NO_STREAM)
    for path in ("/stream", "/stream?stream=person-p1", "/api/stream", "/api/stream?stream=person-p1"):
        text = browser.client.get(path).text
        assert "Secret" not in text
        assert "***" in text
        assert "NL" in text


def test_the_newest_events_are_asked_for_again_by_the_page(browser):
    live = browser.page("/stream?category=order").css_first("#live").attributes
    assert live["hx-get"] == "/stream?category=order"
    assert live["hx-trigger"] == "every 2s"
    assert browser.page("/stream?stream=order-o1&at=0").css_first("[hx-get]") is None


@pytest.mark.parametrize(("query", "places"), [
    ("text=PAID", ["order-o1@1"]),
    ("text=ALERT(1)", ["order-o2@0"]),
    ("in=order-o1", ["order-o1@1", "order-o1@0"]),
    ("in=order-o1&text=quantity", ["order-o1@0"]),
    ("text=nothing+says+so", []),
])  # fmt: skip
def test_events_are_searched_within_a_stream_and_by_a_text(browser, query, places):
    assert [row[2] for row in cells(browser.page(f"/stream?{query}"), ".events")] == places


def test_a_search_for_a_text_looks_at_so_many_events_and_goes_on_from_there(browser, store, monkeypatch):
    monkeypatch.setattr(readings, "LOOKED_AT", 2)
    page = browser.page("/stream?text=customer_id")
    assert [row[2] for row in cells(page, ".events")] == ["order-o2@0"]
    assert page.css_first("#looked").text().startswith("2 events were looked at")
    older = browser.page(page.css_first("a[rel=next]").attributes["href"])
    assert [row[2] for row in cells(older, ".events")] == ["order-o1@0"]
    assert older.css_first("a[rel=next]") is None


def test_a_text_does_not_find_a_personal_value(browser, shop):
    with SqlEventStore(f"sqlite:///{shop}", keys=MasterKeys({"one": os.urandom(32)})) as store:
        store.append("person-p1", [Person.Registered(name="Ann Secret", country="NL")], expected=NO_STREAM)
    assert cells(browser.page("/stream?text=Secret"), ".events") == []
    assert len(cells(browser.page("/stream?text=NL"), ".events")) == 1


def test_steps_of_processes_are_folded_away_and_read_as_their_values(fulfilled):
    page = fulfilled.page("/stream")
    assert {row[2].partition("-")[0] for row in cells(page, ".events")} == {"item", "order"}
    (link,) = page.css("#processes a")
    steps = cells(fulfilled.page(link.attributes["href"]), ".events")
    assert {row[1] for row in steps} == {"process.stepped"}
    assert steps[-1][3] == "event order.placed → running, sends item.reserve"
    page = fulfilled.page("/stream?stream=fulfilment-o2&at=0")
    trace = fulfilled.page(page.css_first("#why a").attributes["href"]).css_first("#trace").text()
    assert "amount=9.0000" in trace
    assert "timeout payment → compensating, sends item.release" in trace
    text = page.css_first("#payload").text()
    assert '"amount": 9.0000' in text
    assert "$decimal" not in text
    assert "\\" not in text


# ---- schemas


class First:
    class Order(Aggregate):
        """What the first release of the tea shop wrote, whose orders had no quantity."""

        @event
        class Placed:
            customer_id: int


class Second:
    class Order(Aggregate):
        """What the second one wrote."""

        @event
        class Placed:
            customer_id: int
            gift: bool = False


@pytest.fixture
def earlier(tmp_path):
    """A browser of a store whose events the tea shop of today cannot read."""
    url = f"sqlite:///{tmp_path}/earlier.db"
    with SqlEventStore(url) as store:
        store.create_tables()
        for release in (First, Second):
            store.register(release.Order)
    opened = Sources(Places(store_url=url), find_definitions([TEASHOP]), every=0.0, patience=30.0)
    yield Browser(opened)
    opened.close()


def test_every_type_is_listed_with_its_readers(browser):
    rows = {row[0]: row for row in cells(browser.page("/schemas"), "#types")}
    placed = rows["order.placed"]
    assert placed[1] == "1"
    for reader in ("group teashop.orders", "branches order", "subscription reviews", "process payment"):
        assert reader in placed[2]
    assert "subscription" not in rows["order.paid"][2]


@pytest.mark.parametrize(
    ("read", "reads"),
    [({"topic": "order"}, True), ({"pattern": "ord.*"}, True), ({"topic": "order.large"}, True),
     ({"topic": "person"}, False)],
)  # fmt: skip
def test_a_handler_of_every_event_is_a_reader_of_what_comes_by_its_topics(browser, sources, read, reads):
    @subscription(**read, group="everything")
    def everything(event: RecordedEvent) -> None: ...

    sources.definitions.subscriptions["shop:everything"] = everything
    rows = {row[0]: row for row in cells(browser.page("/schemas"), "#types")}
    assert ("subscription everything" in rows["order.paid"][2]) == reads


def test_a_schema_that_the_code_cannot_read_comes_first_with_what_to_do(earlier):
    (first,) = cells(earlier.page("/schemas"), "#types")
    assert (first[0], first[1], first[3]) == ("order.placed", "2", "2 unreadable")
    assert "remedy:" in earlier.page("/schemas?type=order.placed").css_first(".problem").text()


def test_the_difference_between_two_schemas_is_shown_by_field(earlier):
    page = earlier.page("/schemas?type=order.placed")
    (change,) = page.css(".changes li")
    assert change.text().strip() in ("added gift: boolean", "removed gift: boolean")  # two schemas of one version


@pytest.mark.parametrize(("before", "after"), [("long", "string"), ("string", ["null", "string"])])
def test_a_change_within_a_nested_record_is_shown(before, after):
    def schema(kind):
        line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": kind}]}
        fields = [{"name": "lines", "type": {"type": "array", "items": line}}, {"name": "note", "type": "string"}]
        return SimpleNamespace(schema={"fields": fields})

    (change,) = _changes(schema(before), schema(after))
    assert (change.change, change.name) == ("changed", "lines")
    assert change.before == f"list of Line (sku {said(before)})"
    assert change.after == f"list of Line (sku {said(after)})"


@pytest.mark.parametrize(
    ("avro", "words"),
    [
        ("long", "long"),
        (["null", "string"], "null or string"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9, 2)"),
        ({"type": "array", "items": {"type": "string", "logicalType": "uuid"}}, "list of uuid"),
        ({"type": "map", "values": "long"}, "map of long"),
        (compile_hints({"size": Size}, owner="Shirt", namespace="shop")[0].type.avro, "one of s, l"),
        ({"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}, "Line (sku string)"),
    ],
)
def test_a_type_is_said_in_a_few_words(avro, words):
    assert said(avro) == words
