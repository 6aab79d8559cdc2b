"""Schemas: versions and what changed between them, readers, and what the code can no longer read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eventstore import Aggregate, RecordedEvent, SqlEventStore, event, subscription
from factfold.console.definitions import find_definitions
from factfold.console.pages.schemas import _changes, said
from factfold.console.parts import Places
from factfold.console.sources import Sources
from tests.unit.console.conftest import TEASHOP, Browser, cells


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
        ({"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "one of S, L"),
        ({"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}, "Line (sku string)"),
    ],
)
def test_a_type_is_said_in_a_few_words(avro, words):
    assert said(avro) == words
