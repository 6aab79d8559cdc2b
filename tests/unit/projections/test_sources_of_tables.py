"""Whose events a table reads: `source` gives the topic as the service's store does, and is part of the definition."""

from __future__ import annotations

import pytest

from eventstore import Aggregate, SqlEventStore, event
from eventstore.errors import InvalidIdentifier
from projections import ProjectionGroup, Stream, Table, view


class Order(Aggregate):
    sku: str = ""

    @event
    class Placed:
        sku: str

    def on_placed(self, e: Placed) -> None:
        self.sku = e.sku


class Parcel(Aggregate):
    carrier: str = ""

    @event
    class Sent:
        carrier: str

    def on_sent(self, e: Sent) -> None:
        self.carrier = e.carrier


def table(**named):
    return Table.from_events(Order, key="order_id", **named)


def stream(**named):
    return Stream.from_events(Order, events=Order.Placed, key="order_id", time=None, **named)


def group_of(declared):
    @view(key="order_id", tables={"orders": declared})
    def rows(orders):
        return orders

    return ProjectionGroup("orders", [rows])


@pytest.mark.parametrize("declare", [table, stream])
@pytest.mark.parametrize("source", ["/factfold", "/shop", "https://eu.example/billing"])
def test_a_table_reads_the_topic_that_the_store_of_its_service_makes(tmp_path, declare, source):
    with SqlEventStore(f"sqlite:///{tmp_path}/shop.db", source=source) as store:
        store.create_tables()
        store.register(Order)
        (category,) = store.categories()
    assert declare(source=source).topic == category.topic
    assert declare(source=source, topic="orders").topic == "orders"


@pytest.mark.parametrize("declare", [table, stream])
def test_without_a_source_the_topic_is_the_category_and_the_signature_that_of_earlier_releases(declare):
    plain, named = declare(), declare(source="/shop", topic="order")
    assert (plain.topic, plain.source) == ("order", None)
    assert "source" not in plain.signature()
    assert named.signature() == f"{plain.signature()}|source /shop"


@pytest.mark.parametrize("declare", [table, stream])
def test_a_source_that_names_no_topic_is_refused(declare):
    with pytest.raises(InvalidIdentifier):
        declare(source="/ü")


def test_records_are_read_with_their_source_where_one_is_named():
    assert group_of(table()).headed_topics == frozenset()
    assert group_of(table(source="/shop")).headed_topics == {"shop.order"}


def test_a_table_of_several_aggregates_is_of_one_service():
    joined = Table.from_events(Order, Parcel, key="id", name="orders", source="/shop")
    assert {each.topic for each in joined.tables.values()} == {"shop.order", "shop.parcel"}
    assert {each.source for each in joined.tables.values()} == {"/shop"}
