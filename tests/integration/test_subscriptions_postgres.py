"""What handlers do to their transaction on PostgreSQL, and what the database does to theirs."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from eventstore import Subscriber
from eventstore.errors import DeclarationError, StoreUnavailable
from tests.ledger import LEDGER, amounts
from tests.unit.eventstore.handlers import ENDINGS, assert_only_the_culprit_is_given_up, booking, deliver, ending
from tests.unit.eventstore.memory_source import MemorySource, arrivals
from tests.waiting import wait_until


def swallows(tx):
    try:
        tx.execute(sa.insert(LEDGER).values(id=1, amount=None))
    except sa.exc.IntegrityError:
        return


POSTGRES_ENDINGS = ENDINGS | {"an error swallowed": (swallows, False, "after an error that aborted its transaction")}


@pytest.mark.parametrize("at", [1, 3, 5], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("how", POSTGRES_ENDINGS)
def test_a_handler_that_ends_or_aborts_its_transaction_is_given_up_and_no_other_event_is_lost(engine, how, at):
    assert_only_the_culprit_is_given_up(engine, POSTGRES_ENDINGS[how], at=at)
    with engine.connect() as connection:
        assert connection.connection.driver_connection.pgconn.transaction_status == 0


def takes_a_part_back(tx):
    with pytest.raises(sa.exc.IntegrityError), tx.begin_nested():
        tx.execute(sa.insert(LEDGER).values(amount=None))


def works_through_a_session(tx):
    with Session(tx) as session:
        session.execute(sa.insert(LEDGER).values(amount=20))
        session.commit()


@pytest.mark.parametrize("harmless", [takes_a_part_back, works_through_a_session, lambda tx: None])
@pytest.mark.parametrize("guarantee", ["effectively-once", "at-least-once"])
def test_a_handler_that_leaves_its_transaction_as_it_was_is_no_culprit(engine, harmless, guarantee):
    declared = ending(harmless, at=2, guarantee=guarantee)
    assert deliver(declared, MemorySource(arrivals(1, 2, 3)), engine).handled == 3
    assert [amount for amount in amounts(engine) if amount < 20] == [1, 2, 3]


def test_an_engine_in_autocommit_mode_is_refused(engine):
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(DeclarationError, match="autocommit"):
        Subscriber(booking(), MemorySource(), engine=autocommit)


@pytest.fixture
def locked(engine):
    """The inbox, locked by another connection."""
    Subscriber(booking(), MemorySource(), engine=engine).close()
    with engine.begin() as other:
        other.exec_driver_sql("lock table factfold_inbox")
        yield


@pytest.mark.usefixtures("locked")
def test_a_claim_that_hangs_ends_the_subscription_and_its_connection_is_cut(engine):
    source = MemorySource(arrivals(1, 2))
    subscriber = _unchecked(booking(timeout=0.3), source, engine=engine, patience=0.3)
    with subscriber, pytest.raises(StoreUnavailable, match="waited for its database for too long, to begin"):
        subscriber.run_once(timeout=0)
    wait_until(_handlers_are_gone)
    assert (source.acknowledged, source.dead, amounts(engine)) == ([], [], [])


@pytest.mark.usefixtures("locked")
def test_a_lock_that_cannot_be_had_is_no_fault_of_a_record(engine):
    impatient = sa.create_engine(engine.url, connect_args={"options": "-c lock_timeout=20"})
    source = MemorySource(arrivals(1, 2))
    subscriber = _unchecked(booking(attempts=1), source, engine=impatient, patience=0.05)
    with subscriber, pytest.raises(StoreUnavailable, match="refuses: canceling statement due to lock timeout"):
        subscriber.run_once(timeout=0)
    assert (source.acknowledged, source.dead, amounts(engine)) == ([], [], [])
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
    with subscriber, pytest.raises(StoreUnavailable, match="waited for its database for too long, to commit"):
        subscriber.run_once(timeout=0)
    wait_until(_handlers_are_gone)
    assert (source.acknowledged, source.dead, amounts(engine)) == ([], [], [])


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
