"""What handlers do to their transaction on PostgreSQL, and what the database does to theirs."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    Aggregate,
    MasterKeys,
    Personal,
    SqlEventStore,
    Subscriber,
    event,
    open_async_subscriber,
    subscription,
)
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import StoreUnavailable, SubscriptionError
from eventstore.inbox import Inbox
from eventstore.inspection import Replay, Selection
from tests.errors import raises
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.unit.eventstore.async_handlers import booking as booking_later
from tests.unit.eventstore.async_handlers import deliver as deliver_later
from tests.unit.eventstore.handlers import booking
from tests.unit.eventstore.memory_source import MemorySource, arrivals
from tests.waiting import wait_until


class Person(Aggregate):
    @event
    class Joined:
        email: Annotated[str, Personal(erased="(erased)")]


def test_what_postgresql_quotes_of_a_row_is_in_no_log_and_no_dead_letter(engine):
    """Its message is `Key (email)=(…) already exists`, SQLAlchemy adds the parameters."""
    with engine.begin() as tx:
        tx.exec_driver_sql("create table people (email text primary key)")

    @subscription("person", group="members", attempts=1)
    def join(event: Person.Joined, tx: sa.Connection) -> None:
        for _ in range(2):
            tx.execute(sa.text("insert into people values (:email)"), {"email": event.email})

    with SqlEventStore(engine, keys=MasterKeys({"one": os.urandom(32)})) as store:
        store.create_tables()
        store.append("person-1", [Person.Joined(email="annabel@example.org")], expected=ANY)
        source = StoreSource(store, join, category="person")
        with capture_logs() as logged, Subscriber(join, source, engine=engine) as subscriber:
            assert subscriber.run_once(timeout=5).dead == 1
    with engine.connect() as connection:
        (letter,) = connection.execute(sa.text("select * from factfold_dead_letters")).all()
    assert letter.message == 'duplicate key value violates unique constraint "people_pkey"'
    assert "annabel" not in f"{letter} {logged}"
    assert "people_pkey" in logged[0]["exception"]


@pytest.fixture
def locked(engine):
    """The inbox, locked by another connection."""
    Subscriber(booking(), MemorySource(), engine=engine).close()
    with engine.begin() as other:
        other.exec_driver_sql("lock table factfold_inbox")
        yield


def assert_nothing_is_done(subscriber, source, engine, words):
    with subscriber, pytest.raises(StoreUnavailable, match=words):
        subscriber.run_once(timeout=0)
    assert (source.acknowledged, source.dead, amounts(engine)) == ([], [], [])


@pytest.mark.usefixtures("locked")
def test_a_claim_that_hangs_ends_the_subscription_and_its_connection_is_cut(engine):
    source = MemorySource(arrivals(1, 2))
    subscriber = _unchecked(booking(timeout=0.3), source, engine=engine, patience=0.3)
    assert_nothing_is_done(subscriber, source, engine, "waited for its database for too long, to begin")
    wait_until(_handlers_are_gone)


@pytest.mark.usefixtures("locked")
def test_a_lock_that_cannot_be_had_is_no_fault_of_a_record(engine):
    impatient = sa.create_engine(engine.url, connect_args={"options": "-c lock_timeout=20"})
    source = MemorySource(arrivals(1, 2))
    subscriber = _unchecked(booking(attempts=1), source, engine=impatient, patience=0.05)
    assert_nothing_is_done(subscriber, source, engine, "refuses: canceling statement due to lock timeout")
    impatient.dispose()


def _unchecked(declared, source, **options):
    """A subscriber that was opened before the lock was taken."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eventstore.inbox.Inbox.create_tables", lambda inbox: None)
        return Subscriber(declared, source, **options)


def test_a_commit_that_hangs_ends_the_subscription_and_nothing_is_committed(engine):
    with engine.begin() as tx:
        tx.exec_driver_sql(
            "create function wait() returns trigger language plpgsql as "
            "$$ begin perform pg_sleep(60); return new; end $$"
        )
        tx.exec_driver_sql(
            "create constraint trigger wait after insert on ledger deferrable initially deferred "
            "for each row execute function wait()"
        )
    source = MemorySource(arrivals(1, 2))
    subscriber = Subscriber(booking(timeout=0.3), source, engine=engine, patience=0.3)
    assert_nothing_is_done(subscriber, source, engine, "waited for its database for too long, to commit")
    wait_until(_handlers_are_gone)


def test_a_server_that_is_read_only_since_a_failover_costs_no_record(engine):
    source, name = MemorySource(arrivals(1, 2)), engine.url.database
    with Subscriber(booking(attempts=1), source, engine=engine, patience=0.05) as subscriber:
        with engine.begin() as tx:
            tx.exec_driver_sql(f'alter database "{name}" set default_transaction_read_only = on')
        engine.dispose()
        with pytest.raises(StoreUnavailable, match=r"refuses: .* in a read-only transaction"):
            subscriber.run_once(timeout=0)
    assert (source.acknowledged, source.dead) == ([], [])


def _handlers_are_gone():
    return not any(thread.name == "handler of books" for thread in threading.enumerate())


# ---- A replay beside a subscriber that handles the same event at the same moment


@subscription("payment", group="ledger")
def book(event: Payment.Received, tx: sa.Connection) -> None:
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))


@pytest.fixture
def store(database: Any) -> Iterator[SqlEventStore]:
    with SqlEventStore(database()) as opened:
        opened.create_tables()
        METADATA.create_all(opened.engine)
        opened.append("payment-1", [Payment.Received(amount=n) for n in (1, 2)], expected=ANY)
        yield opened


def test_an_event_that_a_subscriber_handles_at_the_same_moment_is_left_to_it(store):
    first = next(store.read_stream("payment-1"))
    inbox = Inbox(store.engine, "ledger")
    inbox.create_tables()
    reports: list[Any] = []
    replay = Replay(store, book, Selection(streams=("payment-1",)))
    thread = threading.Thread(target=lambda: reports.append(replay.run()))
    with inbox.begin() as tx:
        inbox.claim(tx, "payment", [first.id.hex])
        thread.start()
        wait_until(lambda: _waiting(store.engine) == 1)
        tx.execute(sa.insert(LEDGER).values(amount=100))
    thread.join(30)
    assert [(report.handled, report.overtaken) for report in reports] == [(1, 1)]
    assert amounts(store.engine) == [100, 2]


def _waiting(engine: sa.Engine) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())


# ---- Coroutine handlers on a real broker and a real PostgreSQL: cancelled, hung, cut off


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
            await deliver_later(
                subscription("payments", group="books", timeout=0.2)(hang), MemorySource(batch), looped()
            )
        wait_until(lambda: at_work_in(engine) == 0, what="the end of the transaction")
        assert (await deliver_later(booking_later(), MemorySource(batch), looped())).handled == 3
    finally:  # asyncio waits for what does not go
        release.set()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
    assert amounts(engine) == [1, 2, 3]
