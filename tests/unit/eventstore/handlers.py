"""Handlers that book in a ledger, and such as end the transaction they were lent, each in another way."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore import Subscriber, subscription
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


def ends_by_statement(tx):
    tx.exec_driver_sql(" commit")


def ends_below_sqlalchemy(tx):
    tx.connection.driver_connection.commit()


def ends_and_forgives_itself(tx):
    try:
        tx.commit()
    except Exception:
        return


def ends_below_sqlalchemy_and_fails(tx):
    ends_below_sqlalchemy(tx)
    raise ValueError("too late")


# What of the culprit's own stays, and what its dead letter says.
ENDINGS = {
    "rollback": (lambda tx: tx.rollback(), False, "ended the transaction"),
    "commit": (lambda tx: tx.commit(), False, "ended the transaction"),
    "commit, its error swallowed": (ends_and_forgives_itself, False, "ended the transaction"),
    "commit of the transaction": (lambda tx: tx.get_transaction().commit(), False, "ended the transaction"),
    "commit as a statement": (ends_by_statement, False, "ended the transaction"),
    "commit by the driver": (ends_below_sqlalchemy, True, "ended the transaction"),
    "commit by the driver, then an error": (ends_below_sqlalchemy_and_fails, True, "too late"),
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
    end, stays, says = how
    source = MemorySource(arrivals(1, 2, 3, 4, 5))
    report = deliver(ending(end, at=at), source, engine)
    assert (report.handled + report.duplicates, report.dead) == (4, 1)
    assert [one for one in amounts(engine) if one != at] == [one for one in range(1, 6) if one != at]
    assert (at in amounts(engine)) == stays
    (letter,) = source.dead
    assert (letter.arrival.place, letter.attempts) == (str(at), 2)
    assert says in str(letter.error)
    return report
