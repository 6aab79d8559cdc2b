"""Coroutine handlers that book in a ledger, and such as end the transaction they were lent, each in another way."""

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


async def ends(tx):
    await tx.commit()


async def rolls_back(tx):
    await tx.rollback()


async def ends_by_statement(tx):
    await tx.exec_driver_sql(" commit")


async def ends_below_sqlalchemy(tx):
    await (await tx.get_raw_connection()).driver_connection.commit()


async def ends_and_forgives_itself(tx):
    try:
        await tx.commit()
    except Exception:
        return


async def ends_below_sqlalchemy_and_fails(tx):
    await ends_below_sqlalchemy(tx)
    raise ValueError("too late")


# What of the culprit's own stays, and what its dead letter says.
ENDINGS = {
    "rollback": (rolls_back, False, "ended the transaction"),
    "commit": (ends, False, "ended the transaction"),
    "commit, its error swallowed": (ends_and_forgives_itself, False, "ended the transaction"),
    "commit as a statement": (ends_by_statement, False, "ended the transaction"),
    "commit by the driver": (ends_below_sqlalchemy, True, "ended the transaction"),
    "commit by the driver, then an error": (ends_below_sqlalchemy_and_fails, True, "too late"),
}


def ending(end, *, at):
    """A subscription that books amounts, and at one of them does `end` with its transaction."""

    async def book(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == at:
            await end(tx)

    return subscription("payments", group="books", backoff=0.001, attempts=2)(book)
