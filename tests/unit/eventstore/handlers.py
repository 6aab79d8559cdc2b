"""Handlers that book in a ledger, and such as end the transaction they were lent, each in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy as sa

from eventstore import ANY, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.memory_source import MemorySource, arrivals


def booking(*, fails_on=(), fails_times=10**9, **options):
    """A subscription that books amounts in the ledger and raises at some of them, so many times each."""
    left = dict.fromkeys(fails_on, fails_times)

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if left.get(event.amount, 0) > 0:
            left[event.amount] -= 1
            raise ValueError(f"no room for {event.amount}")

    return subscription("payments", group="books", **{"backoff": 0.001} | options)(book)


def deliver(declared, source, engine=None, **options):
    """Run until the source has nothing more; return what became of the records."""
    with Subscriber(declared, source, engine=engine, **options) as subscriber:
        while source.waiting:
            subscriber.run_once(timeout=0)
        return subscriber.report


def deliver_stored(store, declared, *, category="payment", engine=None, around=(), **options):
    """Deliver all events of a store's categories that wait; return what became of them."""
    source = StoreSource(store, declared, category=category, engine=engine or store.engine, **options)
    with Subscriber(declared, source, engine=engine or store.engine, around=around) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        return subscriber.report


def store_of_letters(url, declared, *events, stream):
    """Make a store whose events wait, and let a handler that fails give them up."""
    with SqlEventStore(url) as store:
        store.create_tables()
        store.append(stream, events, expected=ANY)
        deliver_stored(store, declared, category=stream.partition("-")[0])


class Ending(NamedTuple):
    """A way to end a transaction, whether what the culprit wrote before stays, what its dead letter says."""

    end: Callable[[sa.Connection], object]
    stays: bool = False
    says: str = "ended the transaction"


def _driver(tx):
    return tx.connection.dbapi_connection


def ends_and_forgives_itself(tx):
    try:
        tx.commit()
    except Exception:
        return


def by_driver_and_fails(tx):
    _driver(tx).commit()
    raise ValueError("too late")


def and_writes_on(end):
    """End it, and write in the transaction that the driver begins then."""

    def end_and_write(tx):
        end(tx)
        tx.execute(sa.insert(LEDGER).values(amount=1000))

    return end_and_write


ENDINGS = {
    "rollback": Ending(lambda tx: tx.rollback()),
    "commit": Ending(lambda tx: tx.commit()),
    "commit, its error swallowed": Ending(ends_and_forgives_itself),
    "commit of the transaction": Ending(lambda tx: tx.get_transaction().commit()),
    "commit as a statement": Ending(lambda tx: tx.exec_driver_sql(" commit")),
    "commit behind a comment": Ending(lambda tx: tx.exec_driver_sql("/**/commit"), stays=True),
    "commit behind a comment, then more": Ending(
        and_writes_on(lambda tx: tx.exec_driver_sql("/**/commit")), stays=True
    ),
    "commit by the driver": Ending(lambda tx: _driver(tx).commit(), stays=True),
    "commit by the driver, then more": Ending(and_writes_on(lambda tx: _driver(tx).commit()), stays=True),
    "commit by the driver, then an error": Ending(by_driver_and_fails, stays=True, says="too late"),
    "rollback behind a comment": Ending(lambda tx: tx.exec_driver_sql("-- no\nrollback")),
    "rollback by the driver": Ending(lambda tx: _driver(tx).rollback()),
    "rollback by the driver, then more": Ending(and_writes_on(lambda tx: _driver(tx).rollback())),
}


def ending(end, *, at, **options):
    """A subscription that books amounts, and at one of them does `end` with its transaction."""

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == at:
            end(tx)

    return subscription("payments", group="books", **{"backoff": 0.001, "attempts": 2} | options)(book)


def assert_only_the_culprit_is_given_up(engine, how, *, at):
    """Deliver five events to a handler that ends its transaction at one of them; that one alone is a dead letter."""
    source = MemorySource(arrivals(1, 2, 3, 4, 5))
    report = deliver(ending(how.end, at=at), source, engine)
    assert_given_up(engine, how, report, source, at=at)
    return report


def assert_given_up(engine, how, report, source, *, at):
    """Of five events the one whose handler ended its transaction is a dead letter, and no other."""
    assert (report.handled + report.duplicates, report.dead) == (4, 1)
    assert [one for one in amounts(engine) if one != at] == [one for one in range(1, 6) if one != at]
    # Once, however often it may be tried: what stays is not done again.
    assert amounts(engine).count(at) == how.stays
    (letter,) = source.dead
    assert (letter.arrival.place, letter.attempts) == (str(at), 1 if how.stays else 2)
    assert how.says in str(letter.error)
