"""Records as a subscription reads them: by their headers first, and decoded only where a handler takes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eventstore import subscription
from eventstore.erasure import PersonalData
from eventstore.errors import NotFramedAvro
from eventstore.event_types import event_type_of
from eventstore.kafka.arrivals import ArrivalReader
from tests.ledger import Payment

RECEIVED, REFUNDED = event_type_of(Payment.Received), event_type_of(Payment.Refunded)
FRAME = 5  # a zero byte, and the schema's id


class Message:
    def __init__(self, kind, body):
        self._kind, self._body = kind, body

    def topic(self):
        return "payment"

    def partition(self):
        return 0

    def offset(self):
        return 7

    def headers(self):
        return [("ce_type", self._kind.name.encode()), ("ce_id", b"00000000-0000-4000-8000-000000000001")]

    def value(self):
        return self._kind.encode(self._kind.cls(amount=1))[:FRAME] + self._body


@pytest.fixture
def reader():
    known = {kind.schema_id: kind.registered for kind in (RECEIVED, REFUNDED)}
    schemas = SimpleNamespace(schema=known.__getitem__, knows_type=lambda name: name in (RECEIVED.name, REFUNDED.name))

    def book(event: Payment.Received) -> None: ...

    return ArrivalReader(subscription("payment", group="g")(book), schemas, PersonalData(None))


def test_the_header_decides_before_the_body_is_decoded(reader):
    """A body that cannot be decoded proves that nobody tried."""
    unwanted = reader.read(Message(REFUNDED, b""), "payment")
    assert (unwanted.type, unwanted.problem, unwanted.topic) == (None, None, "payment")
    wanted = reader.read(Message(RECEIVED, b""), "payment")
    assert isinstance(wanted.problem, NotFramedAvro)
