"""The broker is killed with -9 while nothing happens: who only waits for records goes on by itself when it is back."""

from __future__ import annotations

import pytest

from projections import rebuild
from projections.running.restarts import Restarts
from tests.integration.following import followed
from tests.integration.log_writer import LogWriter
from tests.integration.ticket_history import TicketHistory, assert_views_as_expected, view_rows
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group
from tests.waiting import wait_until


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.faults)])
def test_an_idle_runner_outwaits_a_broker_that_is_killed_again_and_again(environment, stack, kills):
    env = environment()
    writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
    group, history = ticket_group(writer), TicketHistory(writer, 5)
    writer.send(history.step())
    rebuild(env, group)
    with followed(env, group, policy=Restarts(limit=1_000, first=0.1, longest=0.5)) as (follower, goes_on):
        for _ in range(kills):
            seen = follower.restarts
            stack.kill("kafka")
            wait_until(lambda seen=seen: follower.restarts > seen, alive=goes_on, what="a failure that passes")
            stack.start("kafka")
            writer.send([record for _ in range(20) for record in history.step()])
            wait_until(
                lambda: view_rows(env, "ticket_left") == history.expected_left(), alive=goes_on, what="the views"
            )
    assert_views_as_expected(env, history)
