"""A handler's transaction is its subscriber's to end: whoever ends it loses no other event, and is named."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from eventstore import Subscriber, subscription
from eventstore.errors import DeclarationError, StoreUnavailable, SubscriptionError
from eventstore.inbox import Inbox
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.unit.eventstore.handlers import ENDINGS, assert_only_the_culprit_is_given_up, deliver, ending
from tests.unit.eventstore.memory_source import MemorySource, arrivals


@pytest.mark.parametrize("at", [1, 3, 5], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("how", ENDINGS)
def test_a_handler_that_ends_its_transaction_is_given_up_and_no_other_event_is_lost(engine, how, at):
    report = assert_only_the_culprit_is_given_up(engine, ENDINGS[how], at=at)
    # What was committed with the first attempt is known to the second.
    assert report.duplicates == (at - 1 if ENDINGS[how].stays else 0)
    assert _next_in_pool_is_clean(engine)


def _next_in_pool_is_clean(engine):
    with engine.connect() as connection:
        return not connection.connection.driver_connection.in_transaction


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_batch_handler_that_ends_its_transaction_loses_no_other_event(engine, at):
    def book(events: list[Payment.Received], tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER), [{"amount": event.amount} for event in events])
        if any(event.amount == at for event in events):
            tx.commit()

    source = MemorySource(arrivals(1, 2, 3, 4, 5))
    declared = subscription("payments", group="books", attempts=2, backoff=0.001)(book)
    report = deliver(declared, source, engine)
    assert (report.handled, report.dead) == (4, 1)
    assert amounts(engine) == [one for one in range(1, 6) if one != at]
    assert (type(source.dead[0].error), source.dead[0].error.code) == (SubscriptionError, "transaction-broken")


def test_what_a_batch_handler_committed_is_not_done_again_and_all_of_its_call_is_given_up(engine):
    def book(events: list[Payment.Received], tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER), [{"amount": event.amount} for event in events])
        tx.exec_driver_sql("/**/commit")

    source = MemorySource(arrivals(1, 2, 3))
    report = deliver(subscription("payments", group="books", backoff=0.001)(book), source, engine)
    assert (report.handled, report.dead, amounts(engine)) == (0, 3, [1, 2, 3])


def test_claims_committed_by_a_handler_are_taken_back_once_the_database_answers_again(engine, monkeypatch):
    """Planted: the database is away when the claims behind the culprit's are to be taken back."""
    unclaim, away = Inbox.unclaim, [StoreUnavailable("away", remedy="wait")]

    def unclaim_later(inbox, tx, ids):
        if away:
            raise away.pop()
        return unclaim(inbox, tx, ids)

    monkeypatch.setattr(Inbox, "unclaim", unclaim_later)
    assert_only_the_culprit_is_given_up(engine, ENDINGS["commit by the driver, then more"], at=3)
    assert not away


def test_a_query_that_is_not_read_to_its_end_is_no_culprit(engine):
    def leave_unread(tx):
        leave_unread.kept = tx.exec_driver_sql("select 1 union all select 2 union all select 3")
        assert leave_unread.kept.fetchone()

    assert deliver(ending(leave_unread, at=2), MemorySource(arrivals(1, 2, 3)), engine).handled == 3


def test_a_handler_may_take_back_a_part_of_what_it_did(engine):
    def take_back(tx):
        with pytest.raises(sa.exc.IntegrityError), tx.begin_nested():
            tx.execute(sa.insert(LEDGER).values(id=1, amount=0))

    assert deliver(ending(take_back, at=2), MemorySource(arrivals(1, 2, 3)), engine).handled == 3
    assert amounts(engine) == [1, 2, 3]


def test_a_handler_that_leaves_its_database_alone_is_no_culprit(engine):
    def look_away(event: Payment.Received, tx: sa.Connection) -> None: ...

    declared = subscription("payments", group="g", guarantee="at-least-once")(look_away)
    assert deliver(declared, MemorySource(arrivals(1, 2)), engine).handled == 2


@pytest.mark.parametrize("guarantee", ["effectively-once", "at-least-once"])
@pytest.mark.parametrize("how", ["created so", "by an option"])
def test_an_engine_in_autocommit_mode_is_refused(tmp_path, how, guarantee):
    url = f"sqlite:///{tmp_path}/service.db"
    created = sa.create_engine(url, isolation_level="AUTOCOMMIT") if how == "created so" else sa.create_engine(url)
    engine = created if how == "created so" else created.execution_options(isolation_level="AUTOCOMMIT")
    source = MemorySource(arrivals(1))
    with pytest.raises(DeclarationError, match="autocommit"):
        Subscriber(ending(lambda tx: None, at=0, guarantee=guarantee), source, engine=engine)
    assert source.on_revoked is None  # it has not even joined its group
    created.dispose()


def test_an_engine_that_begins_by_itself_is_not_taken_for_autocommit():
    """SQLAlchemy's recipe for SQLite: the driver leaves it to an event to begin."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def leave(driver, record):
        driver.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin(connection):
        connection.exec_driver_sql("begin")

    METADATA.create_all(engine)
    report = deliver(ending(lambda tx: tx.rollback(), at=2), MemorySource(arrivals(1, 2, 3)), engine)
    assert (report.handled, report.dead, amounts(engine)) == (2, 1, [1, 3])
    engine.dispose()
