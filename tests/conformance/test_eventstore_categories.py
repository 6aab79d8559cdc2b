"""Several categories of a store read at once, in its own order, each after a place of its own."""

from __future__ import annotations

import pytest

from eventstore import ANY, Aggregate, SqlEventStore, event
from eventstore.backends.sql.counting import snapshots_of, stored_forms
from eventstore.backends.sql.engines import engine_for, refuse_writes
from eventstore.errors import StoreUnavailable
from eventstore.snapshots import Snapshots
from tests.ledger import Payment, Refund

pytestmark = pytest.mark.both_databases


class Other(Aggregate):
    @event
    class Happened:
        amount: int


def test_categories_are_read_in_store_order_each_after_its_own_place(opened):
    store = opened()
    kinds = [("payment", Payment.Received), ("refund", Refund.Paid), ("other", Other.Happened)]
    for amount in range(9):
        category, kind = kinds[amount % 3]
        store.append(f"{category}-{amount // 6}", [kind(amount=amount)], expected=ANY)
    every = list(store.read_all())
    assert _amounts(store.read_categories({"payment": None, "refund": None}, limit=100)) == [0, 1, 3, 4, 6, 7]
    assert _amounts(store.read_categories({"payment": None, "refund": None}, limit=3)) == [0, 1, 3]
    after = {"payment": every[3].position, "refund": None}
    assert _amounts(store.read_categories(after, limit=100)) == [1, 4, 6, 7]
    assert _amounts(store.read_categories({"refund": every[4].position}, limit=100)) == [7]


def test_a_store_is_counted_through_connections_that_refuse_writes(opened):
    store = opened()
    for category, kind, count in [("payment", Payment.Received, 3), ("refund", Refund.Paid, 1)]:
        for number in range(count):
            store.append(f"{category}-{number}", [kind(amount=number)], expected=ANY)
    Snapshots(store).take(Payment.fold(Payment("0"), store.read_stream("payment-0")))
    engine = refuse_writes(engine_for(store.engine.url))
    reading = SqlEventStore(engine)
    assert [(form.type, form.events) for form in stored_forms(reading)] == [("payment.received", 3), ("refund.paid", 1)]
    assert [one.version for one in snapshots_of(reading, "payment").values()] == [0]
    assert snapshots_of(reading, "pay") == {}
    with pytest.raises(StoreUnavailable):
        reading.append("payment-0", [Payment.Received(amount=9)], expected=ANY)
    engine.dispose()


def _amounts(events):
    return [event.data["amount"] for event in events]
