"""Coroutine handlers that book in a ledger, and one that ends the transaction it was lent."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from eventstore import AsyncSubscriber, subscription
from tests.ledger import LEDGER, Payment


def booking(*, fails_on=(), fails_times=10**9, waits=0.0, calls=None, **options):
    """A subscription that books amounts in the ledger and raises at some of them, so many times each."""
    left = dict.fromkeys(fails_on, fails_times)

    async def book(event: Payment.Received, tx: AsyncConnection) -> None:
        if calls is not None:
            calls.append(event.amount)
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        await asyncio.sleep(waits)
        if left.get(event.amount, 0) > 0:
            left[event.amount] -= 1
            raise ValueError(f"no room for {event.amount}")

    return subscription("payments", group="books", **{"backoff": 0.001} | options)(book)


async def deliver(declared, source, engine=None, **options):
    """Run until the source has nothing more; return what became of the records."""
    async with AsyncSubscriber(declared, source, engine=engine, **options) as subscriber:
        while source.waiting:
            await subscriber.run_once(timeout=0)
        return subscriber.report
