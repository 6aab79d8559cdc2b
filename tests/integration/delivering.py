"""Handlers that write down what they get, and ways to let a subscriber deliver to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from eventstore import Subscriber, subscription
from eventstore.subscriptions import Subscription
from tests.integration.payments_topic import LEDGER, Payment


def wait_until(condition, *, within: float = 40.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)


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


def deliver(subscriber: Subscriber, *, records: int, within: float = 40.0):
    """Deliver until so many records are acknowledged; return what became of them."""
    deadline = time.monotonic() + within
    while subscriber.report.records < records:
        subscriber.run_once(timeout=0.2)
        assert time.monotonic() < deadline, f"{subscriber.report} of {records} after {within} s"
    return subscriber.report


@contextmanager
def running(subscriber: Subscriber) -> Iterator[None]:
    """Run a subscriber in a thread; its error, if it ends by one, is raised at the end."""
    stop, failures = threading.Event(), []

    def run() -> None:
        try:
            with subscriber:
                subscriber.run(stop=stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    if failures:
        raise failures[0]
