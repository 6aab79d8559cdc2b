"""The views' database is away for a while: the runner outwaits it, and the views are as if it had never been."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from eventstore import Restarts
from projections import rebuild
from tests.integration.following import followed
from tests.integration.log_writer import LogWriter
from tests.integration.ticket_history import TicketHistory, view_rows
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group
from tests.waiting import wait_until


@pytest.fixture
def switch(stack):
    """A function that lets nobody into a database, or everybody again; who is in it is thrown out."""
    engine = sa.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")

    def turn(name, *, on):
        with engine.connect() as connection:
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {on}')
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
            )

    yield turn
    engine.dispose()


def test_a_store_that_is_down_for_a_while_is_outwaited_and_nothing_is_lost(environment, switch):
    env = environment()
    writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
    group, history = ticket_group(writer), TicketHistory(writer, 5)
    writer.send(history.step())
    rebuild(env, group)
    policy = Restarts(limit=1_000, first=0.1, longest=0.5)
    with followed(env, group, policy=policy) as (follower, goes_on):
        name = env.store._engine.url.database
        switch(name, on=False)
        writer.send([record for _ in range(20) for record in history.step()])
        wait_until(lambda: follower.failures >= 3, alive=goes_on, what="three failures in a row")
        switch(name, on=True)
        wait_until(lambda: view_rows(env, "ticket_left") == history.expected_left(), alive=goes_on, what="the views")
        # Readers see a batch before its runner has come back from it.
        wait_until(lambda: follower.failures == 0, alive=goes_on, what="a batch that counts")
