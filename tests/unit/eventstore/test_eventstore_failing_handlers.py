"""What a failing handler leaves behind: a log that helps, a dead letter, and no personal value in either."""

from __future__ import annotations

import os
import sqlite3
import uuid
from typing import Annotated

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    Aggregate,
    MasterKeys,
    NewEvent,
    Personal,
    RecordedEvent,
    SqlEventStore,
    Subscriber,
    event,
    subscription,
)
from eventstore.backends.sql.source import StoreSource
from eventstore.delivery.source import masked_message
from eventstore.errors import DeclarationError, StoreUnavailable, SubscriptionError
from eventstore.inbox import Inbox
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.unit.eventstore.handlers import ENDINGS, assert_only_the_culprit_is_given_up, booking, deliver, ending
from tests.unit.eventstore.memory_source import MemorySource, arrivals

NAME, EMAIL, YEAR = "Annabel Example", "annabel@example.org", 1967


class Person(Aggregate):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="(erased)")]
        email: Annotated[str, Personal(erased="(erased)")]
        born: Annotated[int, Personal(erased=0)]
        plan: str


PEOPLE = sa.Table(
    "people",
    sa.MetaData(),
    sa.Column("email", sa.Text, primary_key=True),
    sa.Column("born", sa.Integer, nullable=False),
)


@pytest.fixture
def store(tmp_path):
    with SqlEventStore(f"sqlite:///{tmp_path}/people.db", keys=MasterKeys({"one": os.urandom(32)})) as opened:
        opened.create_tables()
        PEOPLE.create(opened.engine)
        opened.append("person-1", [Person.Joined(name=NAME, email=EMAIL, born=YEAR, plan="basic")], expected=ANY)
        yield opened


def tells(text) -> bool:
    return any(word in str(text).casefold() for word in ("annabel", "example", "1967"))


def raises(error):
    def fail(tx, one):
        raise error(one)

    return fail


def twice(tx, one):
    for _ in range(2):
        tx.execute(sa.insert(PEOPLE).values(email=one.email, born=one.born))


def chained(tx, one):
    try:
        twice(tx, one)
    except sa.exc.IntegrityError as error:
        raise RuntimeError(f"cannot keep {one.name}: {error}") from error


FAILURES = {
    "its own text": raises(lambda one: ValueError(f"no room for {one.name} <{one.email}>, born {one.born}")),
    "a part, in other letters": raises(lambda one: KeyError(one.email.split("@")[0].upper())),
    "an error without a text": raises(lambda one: ValueError()),
    "a representation": raises(lambda one: ValueError(repr(one))),
    "a statement's parameters": twice,
    "a null among others": lambda tx, one: tx.execute(sa.insert(PEOPLE).values(email=one.email, born=None)),
    "no statement at all": lambda tx, one: tx.exec_driver_sql(f"insert into {one.email}"),
    "a parameter of no type": lambda tx, one: tx.execute(sa.insert(PEOPLE).values(email=object(), born=one.name)),
    "a cause below it": chained,
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES)
def test_neither_log_nor_dead_letter_of_a_failed_handler_tells_a_personal_value(store, fail):
    @subscription("person", group="members", attempts=2, backoff=0.001)
    def join(event: Person.Joined, tx: sa.Connection) -> None:
        fail(tx, event)

    with (
        capture_logs() as logged,
        Subscriber(join, StoreSource(store, join, category="person"), engine=store.engine) as s,
    ):
        assert s.run_once(timeout=0).dead == 1
    _check(store, logged)


def _check(store, logged):
    with store.engine.connect() as connection:
        (letter,) = connection.execute(
            sa.text("select error, message, stream, version from factfold_dead_letters")
        ).all()
    assert (letter.stream, letter.version) == ("person-1", 0)
    assert not tells(letter)
    assert not tells(logged)
    assert [entry["event"] for entry in logged] == ["handler failed", "dead letter"]


def test_of_a_recorded_event_nothing_is_told_either(store):
    @subscription("person", group="members", attempts=1)
    def join(event: RecordedEvent) -> None:
        raise ValueError(f"what is {dict(event.data)}")

    with capture_logs() as logged, Subscriber(join, StoreSource(store, join, category="person")) as subscriber:
        assert subscriber.run_once(timeout=0).dead == 1
    _check(store, logged)


def test_a_failure_is_logged_with_message_traceback_and_place_when_it_comes_first_and_when_it_is_given_up(engine):
    with capture_logs() as logged:
        deliver(booking(fails_on=(2,), attempts=4), MemorySource(arrivals(1, 2, 3)), engine)
    assert [entry["event"] for entry in logged] == ["handler failed", "dead letter"]
    for entry in logged:
        assert (entry["place"], entry["group"], entry["error"]) == ("2", "books", "ValueError")
        assert entry["message"] == "no room for 2"
        assert 'raise ValueError(f"no room for {event.amount}")' in entry["exception"]
        assert entry["exception"].endswith("ValueError: no room for 2")
    assert logged[1]["attempts"] == 4


def test_a_failure_that_passes_is_logged_once(engine):
    with capture_logs() as logged:
        deliver(booking(fails_on=(2,), fails_times=2), MemorySource(arrivals(1, 2, 3)), engine)
    assert [entry["event"] for entry in logged] == ["handler failed"]


def test_a_batch_handler_s_failure_is_logged_with_the_places_of_its_records(engine):
    failures = [ValueError("not now")]

    def book(events: list[Payment.Received], tx: sa.Connection) -> None:
        if failures:
            raise failures.pop()

    with capture_logs() as logged:
        deliver(subscription("payments", group="books")(book), MemorySource(arrivals(1, 2, 3)), engine)
    assert [(entry["event"], entry["place"], entry["message"]) for entry in logged] == [
        ("handler failed", "1 to 3", "not now")
    ]


def test_a_database_that_is_away_for_a_moment_is_logged(engine):
    source = MemorySource(arrivals(1), fails={"checkpoint": [StoreUnavailable("away", remedy="wait")]})
    with capture_logs() as logged:
        assert deliver(booking(), source, engine).handled == 1
    assert [(entry["event"], entry["place"]) for entry in logged] == [("database away, trying again", "1")]


def _postgres_error(code, primary):
    error = psycopg.errors.lookup(code)(f"{primary}\nDETAIL:  Key (email)=(ann@example.org) already exists.")
    return sa.exc.IntegrityError("insert into people values (%s)", ("ann@example.org",), error)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (_postgres_error("23505", 'duplicate key value violates unique constraint "people_pkey"'),
         'duplicate key value violates unique constraint "people_pkey"'),
        (_postgres_error("22P02", 'invalid input syntax for type integer: "ann@example.org"'),
         'invalid input syntax for type integer: "***"'),
        (_postgres_error("42601", 'syntax error at or near "ann"'), 'syntax error at or near "***"'),
        (sqlite3.OperationalError('near "ann": syntax error'), 'near "***": syntax error'),
        (ValueError(f"failed: {_postgres_error('23505', 'no')}"), "failed: (psycopg.errors.UniqueViolation) no"),
        (ValueError("no room"), "no room"),
    ],
)  # fmt: skip
def test_what_a_database_quotes_of_a_row_is_left_out_whoever_s_event_it_is(error, message):
    assert masked_message(error) == message


# ---- A handler's transaction is its subscriber's to end: whoever ends it loses no other event, and is named


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

    def unclaim_later(inbox, tx, topic, ids):
        if away:
            raise away.pop()
        return unclaim(inbox, tx, topic, ids)

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


# ---- Each dead letter of a subscription that reads a store has a row of its own


EVENT = uuid.uuid4()


def refusing(topic="payment"):
    @subscription(topic, group="books", attempts=1)
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        raise ValueError("below zero")

    return book


def give_up(opened, declared, engine):
    source = StoreSource(opened, declared, category="payment", engine=engine)
    with Subscriber(declared, source, engine=engine) as subscriber:
        assert subscriber.run_once(timeout=0).dead == 1


@pytest.fixture
def open_store(tmp_path):
    opened = []

    def create(name, **options):
        opened.append(SqlEventStore(f"sqlite:///{tmp_path}/{name}.db", **options))
        opened[-1].create_tables()
        opened[-1].append("payment-1", [NewEvent(Payment.Received(amount=-1), id=EVENT)], expected=ANY)
        return opened[-1]

    yield create
    for one in opened:
        one.close()


def letters(engine):
    """Return (topic, event) of each dead letter, sorted."""
    with engine.connect() as connection:
        found = connection.execute(sa.text("select topic, event_id from factfold_dead_letters"))
        return sorted((topic, uuid.UUID(str(event))) for topic, event in found)


def test_one_event_that_two_tenants_have_is_a_dead_letter_of_each(open_store, engine):
    for tenant in ("acme", "globex"):
        give_up(open_store(tenant, topic_prefix=f"{tenant}-"), refusing(), engine)
    assert letters(engine) == [("payment@acme-", EVENT), ("payment@globex-", EVENT)]


def test_one_event_that_a_group_reads_of_two_topics_is_a_dead_letter_of_each(open_store, engine):
    opened = open_store("shop")
    for topic in ("payment", "payment.suspicious"):
        give_up(opened, refusing(topic), engine)
    assert [topic for topic, _ in letters(engine)] == ["payment", "payment.suspicious"]


def test_an_event_given_up_again_has_one_dead_letter(open_store, engine):
    opened = open_store("shop")
    give_up(opened, refusing(), engine)
    with engine.begin() as tx:
        for table in ("factfold_checkpoints", "factfold_inbox"):
            tx.exec_driver_sql(f"delete from {table}")
    give_up(opened, refusing(), engine)
    assert len(letters(engine)) == 1
