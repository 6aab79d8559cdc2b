"""Streams are checked when they are declared, and their sources give them topics."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Annotated

import pytest

from eventstore import Aggregate, Personal, SqlEventStore, event
from eventstore.errors import InvalidIdentifier
from projections import ProjectionGroup, Stream, Table, on, view
from projections.declaring.binding import check
from projections.declaring.views import Reference
from projections.errors import InvalidDefinition
from projections.planning.planner import plan
from tests.errors import raises
from tests.integration.payments import CUSTOMERS, Payment, entries_of, received
from tests.integration.tickets import DECLARED, Ticket
from tests.orders import Order
from tests.reference import RowVersion, valid_at

payments = received()
entries = entries_of()
customers = Table.from_changelog(CUSTOMERS, topic="shop.public.customers")
customer_versions = Table.versions_of(CUSTOMERS, topic="shop.public.customers")
tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)


class Reading(Aggregate):
    @event
    class Taken:
        value: float
        at: dt.datetime

    @event
    class Estimated:
        value: float

    @event
    class Noted:
        value: str
        tags: int | str


def ddl(table):
    return {name: column.ddl for name, column in table.columns.items()}


def test_a_stream_has_its_key_the_fields_of_its_event_and_their_types():
    assert ddl(payments) == {
        "payment_id": "string", "customer_id": "bigint", "amount": "decimal(18,4)", "paid_at": "timestamp",
    }  # fmt: skip
    assert payments.key == payments.row_key == ("payment_id",)
    assert payments.topic == "payment"
    assert not payments.timed_by_record


def test_a_stream_may_have_its_events_versions_as_whole_numbers():
    plain, numbered = (
        Stream.from_events(Reading, events=Reading.Taken, key="entry", id="meter", time="at", version=version)
        for version in (None, "version")
    )
    assert ddl(numbered) == {**ddl(plain), "version": "bigint"}
    assert numbered.signature() != plain.signature()


def test_a_stream_keyed_by_event_has_the_id_the_chosen_fields_of_all_its_types_and_the_time_of_the_record():
    assert ddl(entries) == {
        "entry": "string", "payment_id": "string", "customer_id": "bigint", "reason": "string",
        "event_time": "timestamp",
    }  # fmt: skip
    assert entries.timed_by_record
    assert [event.name for event in entries.events] == ["payment.received", "payment.refused"]


def test_a_stream_may_leave_out_fields_that_cannot_be_columns():
    with pytest.raises(InvalidDefinition, match="cannot be a column"):
        Stream.from_events(Reading, events=Reading.Noted, key="reading_id")
    chosen = Stream.from_events(Reading, events=Reading.Noted, key="reading_id", columns=["value"])
    assert list(chosen.columns) == ["reading_id", "value", "event_time"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"events": []}, "invalid-definition", "a stream of no events"),
        ({"events": Payment.Received}, "invalid-definition", "payment.received is no event of Reading"),
        ({"events": Reading.Taken, "time": "when"}, "unknown-column", "no field 'when'"),
        ({"events": Reading.Taken, "time": "value"}, "invalid-definition", "'value' of reading.taken is double"),
        ({"events": [Reading.Taken, Reading.Estimated], "time": "at"}, "unknown-column",
         "reading.estimated has no field 'at' to be its time"),
        ({"events": [Reading.Taken, Reading.Noted], "columns": ["value"]}, "invalid-definition", "different types"),
        ({"events": Reading.Taken, "columns": ["val"]}, "unknown-column", "no event of the stream has a field 'val'"),
        ({"events": Reading.Taken, "key": "value"}, "invalid-definition", "two columns 'value'"),
        ({"events": Reading.Taken, "id": "key"}, "invalid-definition", "two columns 'key'"),
        ({"events": Reading.Taken, "version": "value"}, "invalid-definition", "two columns 'value'"),
        ({"events": Reading.Taken, "key": "event_time"}, "invalid-definition", "two columns 'event_time'"),
        ({"events": Reading.Taken, "key": "the key"}, "invalid-definition", "not a usable name"),
    ],
)  # fmt: skip
def test_a_stream_that_cannot_be_is_refused(options, code, words):
    with raises(InvalidDefinition, code=code) as caught:
        Stream.from_events(Reading, **{"key": "key", **options})
    assert words in caught.value.message
    assert caught.value.remedy


def test_versions_have_the_columns_and_the_key_of_their_table_and_a_row_for_each_change():
    assert ddl(customer_versions) == ddl(customers)
    assert customer_versions.key == customers.key == ("id",)
    assert customer_versions.row_key == ("id", "_epoch", "_pos")


def test_a_personal_field_is_no_event_time():
    class Visit(Aggregate):
        @event
        class Made:
            at: Annotated[dt.datetime, Personal(erased=dt.datetime(1970, 1, 1, tzinfo=dt.UTC))]

    with pytest.raises(InvalidDefinition, match=r"'at' of visit\.made is personal"):
        Stream.from_events(Visit, events=Visit.Made, key="entry", id="visit", time="at")


TO_VERSIONS = Reference("payments", ("customer_id",), "customer_versions")


def checked(function, *references, key="payment_id"):
    """A view whose plan has shown these references."""
    check(replace(view(key=key)(function), declared=references))


def test_a_view_looks_versions_up_by_key_and_time():
    @view(key="payment_id")
    def payment_risk(payments, customer_versions):
        return payments

    payment_risk = replace(payment_risk, declared=(TO_VERSIONS,))
    assert plan(payment_risk).upwards == ("customer_versions", "payments")
    assert plan(payment_risk).indexes("payments") == (("customer_id", "_time"),)
    assert ProjectionGroup("risk", [payment_risk]).history_topics == ("shop.public.customers",)


def test_a_group_reads_the_records_headers_only_where_a_stream_needs_the_time_or_a_column_is_personal():
    def topics(**tables):
        def rows(first):
            return first

        (table,) = tables.values()
        return ProjectionGroup("g", [view(key=table.key[0], tables={"first": table})(rows)]).headed_topics

    class Guest(Aggregate):
        @event
        class Joined:
            name: Annotated[str, Personal(erased="")]

    guests = Table.from_events(Guest, key="guest_id", columns={"name": on(Guest.Joined).take("name")})
    assert topics(a=payments) == topics(a=tickets) == frozenset()
    assert topics(a=entries) == {"payment"}
    assert topics(a=guests) == {"guest"}


def test_versions_cannot_be_the_root_of_a_view():
    with pytest.raises(InvalidDefinition, match="'customer_versions', which holds the versions of a table"):

        @view(key="id")
        def history(customer_versions):
            return customer_versions


def test_versions_are_not_looked_up_from_a_table_without_an_event_time():
    def ticket_risk(tickets, customer_versions):
        return tickets

    with raises(InvalidDefinition, match="rows have no event time", remedy="Stream.from_events"):
        checked(ticket_risk, Reference("tickets", ("customer_id",), "customer_versions"), key="ticket_id")


def test_no_reference_starts_at_versions():
    def payment_risk(payments, customer_versions, customers):
        return payments

    with pytest.raises(InvalidDefinition, match="a reference starts at the versions of a table"):
        checked(payment_risk, TO_VERSIONS, Reference("customer_versions", ("id",), "customers"))


def test_a_reference_to_versions_has_the_type_of_their_key():
    def payment_risk(payments, customer_versions):
        return payments

    with pytest.raises(InvalidDefinition, match=r"the foreign key is decimal\(18,4\), the key it points to is bigint"):
        checked(payment_risk, Reference("payments", ("amount",), "customer_versions"))


def test_what_a_stream_means_is_part_of_the_fingerprint():
    def meant(**options):
        declared = {"events": Payment.Received, "key": "payment_id", "time": "paid_at", **options}
        return Stream.from_events(Payment, **declared).signature()

    variants = [
        meant(), meant(time=None), meant(key="entry", id="payment_id"), meant(columns=["amount"]),
        meant(events=[Payment.Received, Payment.Refused], time=None), meant(topic="other"),
        meant(events=[Payment.Received, Payment.Refused], time=None, columns=["amount"]),
        meant(time=None, columns=["amount"]),
    ]  # fmt: skip
    assert len(set(variants)) == len(variants)
    assert meant() == payments.signature()
    assert customers.signature() != customer_versions.signature()


def version(place, since, score):
    return RowVersion((True, place), since, None if score is None else {"score": score})


@pytest.mark.parametrize(
    ("time", "score"), [(0, None), (1, 500), (2, 500), (3, 700), (9, 700)], ids=lambda value: str(value)
)
def test_the_reference_takes_the_last_version_that_has_begun(time, score):
    versions = [version(10, 1, 500), version(20, 5, 600), version(30, 3, 700)]
    found = valid_at(versions, time)
    assert (found and found["score"]) == score


# ---- whose events a table reads


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
