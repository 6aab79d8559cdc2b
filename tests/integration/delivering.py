"""Handlers that write down what they get, and ways to let a subscriber deliver to them."""

from __future__ import annotations

from contextlib import AbstractContextManager

import sqlalchemy as sa

from eventstore import Subscriber, subscription
from eventstore.delivery.subscriptions import Subscription
from sample_app.background import Background
from tests.ledger import LEDGER, Payment
from tests.waiting import wait_until


def booking(topic: str, *, group: str = "books", fails_on=(), **options) -> Subscription:
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if event.amount in fails_on:
            raise ValueError(f"no room for {event.amount}")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription(topic, group=group, **{"backoff": 0.01} | options)(book)


def noting(topic: str, *, group: str, into: list, **options) -> Subscription:
    def note(event: Payment.Received) -> None:
        into.append(event.amount)

    return subscription(topic, group=group, **options)(note)


def deliver(subscriber: Subscriber, *, records: int):
    """Deliver until so many records are acknowledged; return what became of them."""

    while subscriber.report.records < records:
        before = subscriber.report.records
        wait_until(
            lambda seen=before: subscriber.run_once(timeout=0.2) and subscriber.report.records > seen,
            what=lambda: f"the next of {records} records after {subscriber.report}",
            pause=0,
        )
    return subscriber.report


def running(subscriber: Subscriber) -> AbstractContextManager[None]:
    """Run a subscriber in a thread for as long as the block lasts; an error it ends by is raised at the end."""

    def run(stop) -> None:
        with subscriber:
            subscriber.run(stop=stop)

    return Background(run, name="subscriber").running()
