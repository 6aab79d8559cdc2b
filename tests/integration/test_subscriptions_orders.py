"""What subscriptions promise beside their usual order, on a real broker and PostgreSQL: at most once, in parallel."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore import open_subscriber, subscription
from eventstore.kafka.groups import group_offsets
from tests.integration.delivering import deliver
from tests.ledger import LEDGER, Payment, amounts


def test_at_most_once_the_broker_knows_of_a_record_before_it_is_handled(settings, payments):
    payments.receive(range(5), partition=0)
    known: list[tuple[int, int]] = []

    def note(event: Payment.Received) -> None:
        known.append((event.amount, group_offsets(settings, payments.name, group="g")[0]))

    declared = subscription(payments.name, group="g", guarantee="at-most-once")(note)
    with open_subscriber(declared, settings=settings) as subscriber:
        deliver(subscriber, records=5)
    assert [amount for amount, _ in known] == [0, 1, 2, 3, 4]
    assert all(offset > amount for amount, offset in known)


def test_parallel_handlers_book_each_event_once_and_each_stream_in_order_over_a_restart(settings, payments, engine):
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    records = [
        payments.record(Payment.Received(amount=amount), partition=amount % 2, ce_subject=f"payment-s{amount % 5}")
        for amount in range(200)
    ]
    payments.put(records)
    declared = subscription(payments.name, group="books", parallel=4, batch=30)(book)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        done = deliver(subscriber, records=60).records
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        deliver(subscriber, records=200 - done)
    assert sorted(amounts(engine)) == list(range(200))
