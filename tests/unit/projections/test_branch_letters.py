"""A dead letter of branches goes where the router would put its record by the present definition, or stays open."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from eventstore import Aggregate, event
from eventstore.errors import ReplayRefused
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import BRANCH_HEADER, TopicRecord
from projections import branches, field, of_type
from projections.branching.letters import routed_again
from tests.reference import route


class Payment(Aggregate):
    @event
    class Received:
        amount: Decimal

    @event
    class Refunded:
        amount: Decimal


class Elsewhere(Aggregate):
    @event
    class Happened:
        amount: Decimal


PAYMENTS = branches(
    Payment, {"suspicious": field("amount") > 900, "refunds": of_type(Payment.Refunded)}, otherwise="validated",
    topic="payment",
)  # fmt: skip
KINDS = [*Payment.event_types.values(), *Elsewhere.event_types.values()]
SCHEMAS: dict[int, RegisteredSchema] = {kind.registered.id: kind.registered for kind in KINDS}
DECODER = AvroDecoder(SCHEMAS.__getitem__)


def letter(made, *, source=b"/payments", partition=3):
    value = made if isinstance(made, bytes) else event_type_of(made).encode(made)
    headers = (
        ("ce_source", source), ("traceparent", None), ("dead_letter_topic", b"payment"),
        ("dead_letter_partition", b"%d" % partition), ("dead_letter_offset", b"7"), ("dead_letter_error", b"X"),
    )  # fmt: skip
    return TopicRecord("payment.dead-letter", 0, 4, b"payment-1@0", value, headers, 0)


@pytest.mark.parametrize(
    ("made", "branch"),
    [(Payment.Received(amount=Decimal(901)), "suspicious"), (Payment.Refunded(amount=Decimal(1)), "refunds"),
     (Payment.Received(amount=Decimal(1)), "validated")],
)  # fmt: skip
def test_a_letter_goes_to_its_branch_and_partition_as_the_router_routes_it(made, branch):
    record = letter(made)
    sent = routed_again(record, PAYMENTS, DECODER)
    assert (sent.topic, sent.partition, sent.key, sent.value) == (f"payment.{branch}", 3, record.key, record.value)
    assert sent.headers == [("ce_source", b"/payments"), ("traceparent", None), (BRANCH_HEADER, branch.encode())]
    ((_, topic, error),) = route(PAYMENTS, [record], SCHEMAS)
    assert (topic, error) == (sent.topic, None)


@pytest.mark.parametrize(
    ("made", "cause"),
    [(b"{}", "NotFramedAvro"), (Elsewhere.Happened(amount=Decimal(1)), "UnknownEventType")],
)
def test_what_would_be_a_dead_letter_again_stays_open_with_its_cause(made, cause):
    record = letter(made)
    with pytest.raises(ReplayRefused, match=cause):
        routed_again(record, PAYMENTS, DECODER)
    ((_, topic, error),) = route(PAYMENTS, [record], SCHEMAS)
    assert (topic, error) == ("payment.dead-letter", cause)


def test_another_service_s_record_stays_open():
    owned = dataclasses.replace(PAYMENTS, source="/shop")
    with pytest.raises(ReplayRefused, match="ForeignRecord"):
        routed_again(letter(Payment.Received(amount=Decimal(1))), owned, DECODER)


def test_a_predicate_that_cannot_be_put_to_a_record_leaves_it_open():
    texts = RegisteredSchema.of(
        {"type": "record", "namespace": "payment", "name": "received", "version": 1,
         "fields": [{"name": "amount", "type": "boolean"}]}
    )  # fmt: skip
    record = letter(AvroEncoder(texts).encode({"amount": True}))
    with pytest.raises(ReplayRefused, match="dead letter again"):
        routed_again(record, PAYMENTS, AvroDecoder(lambda _: texts))
