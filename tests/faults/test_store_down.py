"""The views' database stops for a minute under a runner with the policy that it has by default, which outwaits it.

What is tried again, and what is not, has tests/integration/test_projections_live.py, where nobody waits a minute.
"""

from __future__ import annotations

import time

import pytest

from projections import verify
from tests.integration.following import followed
from tests.integration.ticket_history import assert_views_as_expected, rebuilt_tickets
from tests.waiting import wait_until

DOWN = 60.0
pytestmark = pytest.mark.faults  # the store is down for a minute


def test_a_database_that_is_down_for_a_minute_is_outwaited_and_nothing_is_lost(environment, stack):
    env = environment()
    writer, group, history = rebuilt_tickets(env)
    with followed(env, group) as (follower, goes_on):
        stack.stop("postgres")
        try:
            writer.send([record for _ in range(20) for record in history.step()])
            time.sleep(DOWN)  # the fault itself, and no wait for anything
            goes_on()
            assert follower.failures > 2
        finally:
            stack.start("postgres")
        wait_until(lambda: follower.failures == 0, alive=goes_on, what="a batch behind the minute")
    assert_views_as_expected(env, history)
    assert all(verdict.equal for verdict in verify(env, group).values())
