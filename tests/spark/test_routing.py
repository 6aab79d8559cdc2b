"""Where Spark's routing puts records against where plain Python puts them, without a broker in between."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroEncoder
from eventstore.topics import BRANCH_HEADER, DEAD_LETTERS, TopicRecord
from projections.errors import UnknownSchemaId
from projections.spark.failures import described
from projections.spark.routing import Routing
from tests.integration.late_events import Late
from tests.integration.payment_branches import payments
from tests.integration.payments_of_every_kind import Payment
from tests.reference import route
from tests.rows import each_row
from tests.spark.test_conditions import DECLARED, OLD

HEADERS = "array<struct<key:string,value:binary>>"
RAW = f"topic string, partition int, offset bigint, key binary, value binary, headers {HEADERS}"
FOREIGN = {kind.schema_id: kind.registered for kind in Late.event_types.values()}
GOOD = event_type_of(Payment.Refunded).encode(Payment.Refunded(amount=Decimal("900.0001"), reason="late"))
UNKNOWN = b"\x00\x00\x00\x00\x07body"


def records(*values, headers=(("ce_time", b"2024-05-01T12:00:00Z"),)):
    return [
        TopicRecord(
            topic="payment", partition=number % 2, offset=number, key=b"k@%d" % number, value=value, headers=headers,
            timestamp=0,
        )
        for number, value in enumerate(values)
    ]  # fmt: skip


def routed(small, routing, found):
    rows = [(r.topic, r.partition, r.offset, r.key, r.value, list(r.headers) or None) for r in found]
    with described("branches of payment"):
        result = routing.routed(small.createDataFrame(rows, RAW).coalesce(1)).collect()
    return {bytes(row.key): row for row in result}


def headers(row):
    return {header.key: header.value and bytes(header.value).decode() for header in row.headers}


@each_row("others", [FOREIGN, {}], ids=["with schemas of others", "alone"])
def test_records_go_where_plain_python_puts_them(small, others):
    registry = {**DECLARED, OLD.id: OLD, **others}
    foreign = event_type_of(Late.Began).encode(Late.Began(note="x")) if others else GOOD
    found = records(GOOD, GOOD[:7], b"", None, b"{}", b"\x00\x01", foreign, UNKNOWN)
    result = routed(small, Routing(payments, registry, given_up={7}), found)
    expected = route(payments, found, registry)
    assert len(expected) == len(result) == len(found) - 1  # what deletes an event goes nowhere
    for record, topic, error in expected:
        row = result[record.key]
        told = headers(row)
        assert (row.topic, row.partition, row.value, told.get("dead_letter_error")) == (
            topic, record.partition, record.value, error,
        )  # fmt: skip
        assert told["ce_time"] == "2024-05-01T12:00:00Z"
        assert told.get(BRANCH_HEADER) == (None if error else topic.removeprefix("payment."))


SOURCES = {
    "its own": (("ce_source", b"/shop"),),
    "its own, the first of two": (("ce_source", b"/shop"), ("ce_source", b"/billing")),
    "another's": (("ce_source", b"/billing"),),
    "another's, the first of two": (("ce_source", b"/billing"), ("ce_source", b"/shop")),
    "another's by case": (("ce_source", b"/Shop"),),
    "an empty one": (("ce_source", b""),),
    "null": (("ce_source", None),),
    "none": (("ce_time", b"2024-05-01T12:00:00Z"),),
    "no header at all": (),
}


@each_row("own", [True, False], ids=["its own records", "those of others"])
def test_branches_of_a_service_give_up_records_of_another_as_plain_python_does(small, own):
    """A schema that is unknown and not given up fails a query, unless its record is of another service."""
    headed = [one for one in SOURCES.values() if (one[:1] == (("ce_source", b"/shop"),)) == own]
    values = [value for _ in headed for value in (GOOD, b"not Avro", UNKNOWN)]
    found = [replace(record, headers=headed[number // 3]) for number, record in enumerate(records(*values))]
    result = routed(small, Routing(replace(payments, source="/shop"), DECLARED, given_up={7} if own else ()), found)
    for record, topic, error in route(replace(payments, source="/shop"), found, DECLARED):
        row, told = result[record.key], headers(result[record.key])
        assert (row.topic, told.get("dead_letter_error")) == (topic, error)
        assert (error == "ForeignRecord") == (not own)
        if not own:
            assert row.value == record.value
            assert told["dead_letter_message"].startswith("the record is of another service: '/shop' is declared, and")


def test_branches_that_name_no_service_take_the_records_of_all(small):
    taken = records(*[GOOD] * len(SOURCES))
    found = [replace(record, headers=headed) for record, headed in zip(taken, SOURCES.values(), strict=True)]
    result = routed(small, Routing(payments, DECLARED), found)
    assert [row.topic for row in result.values()] == ["payment.suspicious"] * len(SOURCES)
    assert headers(result[found[list(SOURCES).index("no header at all")].key]) == {BRANCH_HEADER: "suspicious"}


def test_an_unknown_schema_id_fails_the_query_with_the_id_unless_it_was_given_up_or_its_record_had_its_time(small):
    found = records(UNKNOWN, UNKNOWN)
    for settled in ({"given_up": {7}}, {"settled": {0: 1, 1: 2}}, {"given_up": {5, 7}, "settled": {0: 1}}):
        (first, second) = routed(small, Routing(payments, DECLARED, **settled), found).values()
        assert {first.topic, second.topic} == {f"payment.{DEAD_LETTERS}"}
    for settled in ({}, {"settled": {0: 1}}, {"settled": {0: 1, 1: 1}}, {"given_up": {6, 77}}):
        with pytest.raises(UnknownSchemaId) as caught:
            routed(small, Routing(payments, DECLARED, **settled), found)
        assert caught.value.schema_id == 7
        assert "topic payment, partition" in caught.value.place


def test_records_of_an_older_schema_that_a_predicate_cannot_take_are_dead_letters_and_the_rest_is_routed(small):
    today = Payment.event_types["payment.received"].schema["fields"]
    fields = [{"name": "amount", "type": ["null", "string"]}, *(f for f in today if f["name"] != "amount")]
    older = type(OLD).of({**OLD.schema, "fields": fields})
    nothing = dict.fromkeys(field["name"] for field in fields)
    values = [AvroEncoder(older).encode({**nothing, "amount": amount}) for amount in ("901", None)]
    found, registry = records(GOOD, *values, values[0][:6]), {**DECLARED, older.id: older}
    result = routed(small, Routing(payments, registry), found)
    told = [(result[record.key].topic, headers(result[record.key]).get("dead_letter_error")) for record in found]
    assert told == [(topic, error) for _, topic, error in route(payments, found, registry)]
    errors = [None, "InvalidPredicate", "InvalidPredicate", "NotFramedAvro"]
    assert [error for _, error in told] == errors
    message = headers(result[found[1].key])["dead_letter_message"]
    assert f"schema {older.id} of payment.received" in message
    assert "kind text cannot be compared with 900" in message


def test_a_dead_letter_that_dies_again_tells_of_its_last_death_only(small):
    sent_back = (("ce_time", b"2024-05-01T12:00:00Z"), ("dead_letter_error", b"Earlier"), ("dead_letter_group", b"g"))
    dead, alive = records(b"{}", GOOD, headers=sent_back)
    result = routed(small, Routing(payments, DECLARED), [dead, alive])
    names = [header.key for header in result[dead.key].headers]
    assert len(names) == len(set(names))
    assert headers(result[dead.key])["dead_letter_error"] == "NotFramedAvro"
    assert "dead_letter_group" not in names
    assert names[0] == "ce_time"
    kept = [(header.key, bytes(header.value)) for header in result[alive.key].headers]
    assert kept == [*sent_back, (BRANCH_HEADER, b"suspicious")]
