"""Coroutine handlers on a real broker and a real PostgreSQL: cancelled, hung, cut off."""

from __future__ import annotations

import asyncio
import random

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from eventstore import open_async_subscriber, subscription
from eventstore.errors import SubscriptionError
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.async_handlers import (
    booking,
    deliver,
)
from tests.unit.eventstore.memory_source import MemorySource, arrivals
from tests.waiting import wait_until


@pytest.fixture
def looped(engine):
    """A function that gives the ledger's database to a loop; connections are closed when they are given back."""
    return lambda: create_async_engine(engine.url, poolclass=sa.NullPool)


def booking_from(topic, **options):
    async def book(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription(topic, group="books", **options)(book)


async def test_events_of_a_topic_are_handled_once_by_members_that_come_and_go(settings, payments, engine, looped):
    payments.receive(range(40))
    declared = booking_from(payments.name, batch=10)
    async with open_async_subscriber(declared, settings=settings, engine=looped()) as subscriber:
        while subscriber.report.records < 10:
            await subscriber.run_once(timeout=0.2)
    chance = random.Random(11)
    for _ in range(3):
        task = asyncio.create_task(run(declared, settings, looped()))
        await asyncio.wait({task}, timeout=chance.uniform(0.5, 3))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with open_async_subscriber(declared, settings=settings, engine=looped()) as subscriber:
        while len(amounts(engine)) < 40 or (await subscriber.lag()).records:
            await subscriber.run_once(timeout=0.2)
    assert sorted(amounts(engine)) == list(range(40))


async def run(declared, settings, engine):
    async with open_async_subscriber(declared, settings=settings, engine=engine) as subscriber:
        await subscriber.run()


def at_work_in(engine):
    """How many others have a transaction open; the server learns of a cut connection a moment later."""
    query = """select count(*) from pg_stat_activity
        where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()"""
    with engine.connect() as connection:
        return connection.exec_driver_sql(query).scalar()


@pytest.mark.parametrize("obstinate", [False, True])
async def test_a_handler_that_hangs_in_the_database_loses_its_transaction(engine, looped, obstinate):
    release = asyncio.Event()

    async def hang(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == 2 and obstinate:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
        elif event.amount == 2:
            await tx.exec_driver_sql("select pg_sleep(3600)")

    batch = arrivals(1, 2, 3)
    try:
        with raises(SubscriptionError, code="handler-hung"):
            await deliver(subscription("payments", group="books", timeout=0.2)(hang), MemorySource(batch), looped())
        wait_until(lambda: at_work_in(engine) == 0, what="the end of the transaction")
        assert (await deliver(booking(), MemorySource(batch), looped())).handled == 3
    finally:  # asyncio waits for what does not go
        release.set()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
    assert amounts(engine) == [1, 2, 3]
