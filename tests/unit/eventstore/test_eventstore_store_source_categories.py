"""Subscriptions that read several categories of a store directly: one order, a place for each category."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, Subscriber, event, queue, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import CheckpointMoved, DeclarationError
from tests.ledger import LEDGER, Payment, amounts
from tests.rows import each_row
from tests.unit.eventstore.test_eventstore_store_source import booking, dead_letters, deliver, receive


class Refund(Aggregate):
    @event
    class Paid:
        amount: int


def refund(store, *amounts):
    for amount in amounts:
        store.append("refund-1", [Refund.Paid(amount=amount)], expected=ANY)


def joined(topics=("payment", "refund"), **options):
    def book(event: Payment.Received | Refund.Paid, tx: sa.Connection) -> None:
        if event.amount < 0:
            raise ValueError("below zero")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription(list(topics), group="books", **{"backoff": 0.001} | options)(book)


def deliver_all(store, declared, categories=("payment", "refund")):
    """Deliver all there is of some categories; return what became of it."""
    source = StoreSource(store, declared, category=list(categories))
    with Subscriber(declared, source, engine=store.engine) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        return subscriber.report


@pytest.mark.parametrize("batch", [1, 2, 2000])
def test_several_categories_are_read_in_the_order_of_the_store(store, batch):
    receive(store, 1)
    refund(store, 2, 3)
    receive(store, 4)
    assert deliver_all(store, joined(batch=batch)).handled == 4
    refund(store, 5)
    receive(store, 6)
    assert deliver_all(store, joined(batch=batch)).handled == 2
    assert amounts(store.engine) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("batch", [1, 2, 2000])
def test_a_category_that_is_named_later_begins_at_its_start_and_the_others_go_on(store, batch):
    """As an existing deployment that reads one more category: its rows stay valid."""
    receive(store, 1)
    refund(store, 2)
    receive(store, 3)
    assert deliver(store, booking()).handled == 2
    receive(store, 4)
    refund(store, 5)
    report = deliver_all(store, joined(batch=batch))
    assert (report.handled, report.duplicates) == (3, 0)
    assert amounts(store.engine) == [1, 3, 2, 4, 5]


def test_a_category_that_was_left_out_for_a_while_goes_on_where_it_stood(store):
    receive(store, 1)
    refund(store, 2)
    deliver_all(store, joined())
    refund(store, 3)
    receive(store, 4)
    assert deliver(store, booking()).handled == 1
    assert deliver_all(store, joined()).handled == 1
    assert amounts(store.engine) == [1, 2, 4, 3]


def test_two_subscribers_of_several_categories_do_not_both_deliver_an_event(store):
    receive(store, 1)
    declared = joined(guarantee="at-least-once")
    with Subscriber(declared, StoreSource(store, declared, category=["payment", "refund"]), engine=store.engine) as one:
        deliver_all(store, declared)
        with pytest.raises(CheckpointMoved, match="books"):
            one.run_once(timeout=0)
    assert amounts(store.engine) == [1]


def test_dead_letters_lag_and_inbox_are_by_the_category_of_the_event(store):
    receive(store, -1)
    refund(store, -2, 3)
    declared = joined(attempts=1)
    source = StoreSource(store, declared, category=["payment", "refund"])
    source.open(lambda: None)
    assert {part.topic: part.records for part in source.lag().partitions} == {"payment": 1, "refund": 2}
    assert deliver_all(store, declared).dead == 2
    assert sorted((row.topic, row.stream) for row in dead_letters(store)) == [
        ("payment", "payment-1"),
        ("refund", "refund-1"),
    ]
    assert source.lag().records == 0
    with store.engine.connect() as connection:
        handled = connection.execute(sa.text("select topic from factfold_inbox where outcome = 'handled'")).scalars()
        assert handled.all() == ["refund"]


def test_an_end_is_the_end_of_each_category(store):
    receive(store, 1)
    refund(store, 2)
    declared = joined(start="end")
    with Subscriber(declared, StoreSource(store, declared, category=["payment", "refund"]), engine=store.engine) as one:
        refund(store, 3)
        receive(store, 4)
        assert one.run_once(timeout=0).handled == 2
    assert amounts(store.engine) == [3, 4]


HANDLER = booking().handler
NO_CATEGORY = [(joined(), category) for category in ("payment", ["payment"], ["payment"] * 2, ["a", "b", "c"], [])]


@each_row(
    ("declared", "category", "cause"),
    [
        *((*one, "the store's categories") for one in NO_CATEGORY),
        (subscription(pattern="p.*", group="g")(HANDLER), "payment", r"topics like p\.\*"),
        (queue("payment", group="desk")(HANDLER), "payment", "a queue, which a store does not have"),
        (booking(retry=[timedelta(seconds=1)]), "payment", "a retry topic, which a store does not have"),
        (booking(start={0: 5}), "payment", "starts at offsets, which a store does not have"),
    ],
)
def test_what_a_store_does_not_have_is_refused(store, declared, category, cause):
    with pytest.raises(DeclarationError, match=cause):
        Subscriber(declared, StoreSource(store, declared, category=category), engine=store.engine)
