"""A handler that ends its transaction in PostgreSQL is found out, and one that leaves it as it was is no culprit."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from eventstore import subscription
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.handlers import ENDINGS, Ending, assert_only_the_culprit_is_given_up, deliver, ending
from tests.unit.eventstore.memory_source import MemorySource, arrivals


def swallows(tx):
    try:
        tx.execute(sa.insert(LEDGER).values(id=1, amount=None))
    except sa.exc.IntegrityError:
        return


def commits_and_swallows(tx):
    tx.exec_driver_sql("/**/commit and chain")
    swallows(tx)


def by_statement(statement):
    return lambda tx: tx.exec_driver_sql(statement)


POSTGRES_ENDINGS = ENDINGS | {
    "an error swallowed": Ending(swallows, says="after an error that aborted its transaction"),
    "commit, then an error swallowed": Ending(commits_and_swallows, stays=True, says="after an error that aborted"),
    "commit and chain behind a comment": Ending(by_statement("/**/commit and chain"), stays=True),
    "rollback and chain behind a comment": Ending(by_statement("/* */ rollback and chain")),
    "commit as a second statement": Ending(
        by_statement("select 1; commit; begin; insert into ledger (amount) values (1000)"), stays=True
    ),
}


@pytest.mark.parametrize("how", POSTGRES_ENDINGS)
def test_a_handler_that_ends_or_aborts_its_transaction_is_given_up_and_no_other_event_is_lost(engine, how):
    assert_only_the_culprit_is_given_up(engine, POSTGRES_ENDINGS[how], at=3)
    with engine.connect() as connection:
        assert connection.connection.driver_connection.pgconn.transaction_status == 0


def takes_a_part_back(tx):
    with pytest.raises(sa.exc.IntegrityError), tx.begin_nested():
        tx.execute(sa.insert(LEDGER).values(amount=None))


def names_itself(tx):
    tx.exec_driver_sql("set application_name = 'reviewer'")


def names_itself_for_a_while(tx):
    part = tx.begin_nested()
    tx.exec_driver_sql("set local application_name = 'reviewer'")
    part.rollback()


HARMLESS = [takes_a_part_back, names_itself, names_itself_for_a_while]


@pytest.mark.parametrize("harmless", HARMLESS)
@pytest.mark.parametrize("guarantee", ["effectively-once", "at-least-once"])
def test_a_handler_that_leaves_its_transaction_as_it_was_is_no_culprit(engine, harmless, guarantee):
    declared = ending(harmless, at=2, guarantee=guarantee)
    assert deliver(declared, MemorySource(arrivals(1, 2, 3)), engine).handled == 3
    assert [amount for amount in amounts(engine) if amount < 20] == [1, 2, 3]


def test_a_transaction_is_lent_under_a_name_and_takes_no_transaction_id_of_its_own(engine):
    seen = []

    def look(tx):
        seen.append(tx.exec_driver_sql("select current_setting('application_name')").scalar())
        seen.append(tx.exec_driver_sql("select pg_current_xact_id_if_assigned()").scalar())

    named = sa.create_engine(engine.url, connect_args={"application_name": "shop " + "x" * 70})

    def handle(event: Payment.Received, tx: sa.Connection) -> None:
        look(tx)

    declared = subscription("payments", group="g", guarantee="at-least-once")(handle)
    assert deliver(declared, MemorySource(arrivals(1)), named).handled == 1
    name, transaction_id = seen
    assert name.startswith("shop xxx")
    assert name.endswith(" (lent)")
    assert transaction_id is None
    with named.connect() as connection:
        assert "(lent)" not in connection.exec_driver_sql("select current_setting('application_name')").scalar()
    named.dispose()
