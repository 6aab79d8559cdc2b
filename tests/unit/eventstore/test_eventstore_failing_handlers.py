"""What a failing handler leaves behind: a log that helps, a dead letter, and no personal value in either."""

from __future__ import annotations

import os
import sqlite3
from typing import Annotated

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    Aggregate,
    AsyncSubscriber,
    MasterKeys,
    Personal,
    RecordedEvent,
    SqlEventStore,
    Subscriber,
    event,
    subscription,
)
from eventstore.backends.sql.source import StoreSource
from eventstore.delivery.masking import masked_message
from eventstore.errors import StoreUnavailable
from tests.ledger import Payment
from tests.unit.eventstore.handlers import booking, deliver
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


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES)
async def test_nor_does_that_of_a_coroutine_handler(store, fail):
    @subscription("person", group="members", attempts=2, backoff=0.001)
    async def join(event: Person.Joined, tx: AsyncConnection) -> None:
        await tx.run_sync(lambda connection: fail(connection, event))

    engine = create_async_engine(store.engine.url.set(drivername="sqlite+aiosqlite"), poolclass=sa.NullPool)
    with capture_logs() as logged:
        async with AsyncSubscriber(join, StoreSource(store, join, category="person"), engine=engine) as subscriber:
            assert (await subscriber.run_once(timeout=0)).dead == 1
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
