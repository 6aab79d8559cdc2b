"""Coroutine handlers that book in a ledger, and such as end the transaction they were lent, each in another way."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from eventstore import AsyncSubscriber, subscription
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.handlers import Ending
from tests.unit.eventstore.memory_source import MemorySource, arrivals


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


async def _driver(tx):
    return (await tx.get_raw_connection()).driver_connection


async def _commits_by_driver(tx):
    await (await _driver(tx)).commit()


async def _rolls_back_by_driver(tx):
    await (await _driver(tx)).rollback()


async def _forgives_itself(tx):
    try:
        await tx.commit()
    except Exception:
        return


async def _commits_by_driver_and_fails(tx):
    await _commits_by_driver(tx)
    raise ValueError("too late")


def and_writes_on(end):
    """End it, and write in the transaction that the driver begins then."""

    async def end_and_write(tx):
        await end(tx)
        await tx.execute(sa.insert(LEDGER).values(amount=1000))

    return end_and_write


def by_statement(statement):
    """End it by a statement."""
    return lambda tx: tx.exec_driver_sql(statement)


ENDINGS = {
    "rollback": Ending(lambda tx: tx.rollback()),
    "commit": Ending(lambda tx: tx.commit()),
    "commit, its error swallowed": Ending(_forgives_itself),
    "commit as a statement": Ending(by_statement(" commit")),
    "commit behind a comment": Ending(by_statement("/**/commit"), stays=True),
    "commit behind a comment, then more": Ending(and_writes_on(by_statement("/**/commit")), stays=True),
    "commit by the driver": Ending(_commits_by_driver, stays=True),
    "commit by the driver, then more": Ending(and_writes_on(_commits_by_driver), stays=True),
    "commit by the driver, then an error": Ending(_commits_by_driver_and_fails, stays=True, says="too late"),
    "rollback behind a comment": Ending(by_statement("/**/rollback")),
    "rollback by the driver, then more": Ending(and_writes_on(_rolls_back_by_driver)),
}


def ending(end, *, at):
    """A subscription that books amounts, and at one of them does `end` with its transaction."""

    async def book(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == at:
            await end(tx)

    return subscription("payments", group="books", backoff=0.001, attempts=2)(book)


async def assert_only_the_culprit_is_given_up(how, *, engine, looped):
    """Deliver five events to a handler that ends its transaction at the third; that one alone is a dead letter."""
    source = MemorySource(arrivals(1, 2, 3, 4, 5))
    report = await deliver(ending(how.end, at=3), source, looped)
    assert (report.handled + report.duplicates, report.dead) == (4, 1)
    assert [one for one in amounts(engine) if one != 3] == [1, 2, 4, 5]
    assert amounts(engine).count(3) == how.stays
    (letter,) = source.dead
    assert (letter.arrival.place, letter.attempts) == ("3", 1 if how.stays else 2)
    assert how.says in str(letter.error)
