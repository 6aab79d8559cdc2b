"""T10: a view is read all the time, while tickets arrive and its generations are rebuilt, switched and rolled back.

A hundred tickets come each second. FACTFOLD_KILLS sets how many rebuilds there are, one after the other. Each is killed
and resumed twice. Ten readers look 10,000 times together. A killed rebuild is one whose process does nothing any more.

Tickets tell their partition and their place in it. So a look tells by itself that it is partial, a partition with fewer
tickets than its last one says there are, and by the look before it that it is empty or goes backwards.
"""

from __future__ import annotations

import os

import pytest

from projections import open_runner, rebuild, rollback, verify
from projections.stores.sqlite import SqliteTableStore
from tests.integration.log_writer import LogWriter
from tests.integration.rebuild_watching import (
    Counted,
    Killed,
    Life,
    growing_group,
    killed_at,
    rows_of,
)
from tests.integration.tickets import Ticket

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
READERS, POINTS, LOOKS = 10, ("views", "serve"), 10_000
SHOWN = ("ticket_id", "customer_id", "status")


@pytest.fixture
def env(request, environment, tmp_path):
    """Views in an empty database."""
    on_sqlite = getattr(request, "param", None) == "SQLite"
    return environment(SqliteTableStore(tmp_path / "views.db") if on_sqlite else None)


@pytest.fixture
def writer(env):
    return LogWriter(env.log.settings, Ticket)


@pytest.fixture
def tickets(writer):
    return Counted(writer)


def killed_and_resumed(env, group):
    for point in POINTS:
        with pytest.raises(Killed):
            rebuild(env, group, on_progress=killed_at(point))
    return rebuild(env, group)


@pytest.mark.faults
@pytest.mark.timeout(max(300, 120 * KILLS))
@pytest.mark.parametrize("env", ["PostgreSQL", "SQLite"], indirect=True)
def test_readers_never_go_back_in_time_while_generations_are_rebuilt_switched_and_rolled_back(
    env, writer, tickets, say
):
    first, second = growing_group(writer, columns=SHOWN), growing_group(writer, columns=SHOWN)
    tickets.send(50)
    rebuild(env, first)
    life = Life(env, first, tickets, readers=READERS)
    with life.going_on():
        for _ in range(KILLS):
            life.wait_for_batches()
            report = killed_and_resumed(env, second)
            assert (report.resumed, report.serves) == (True, True)
            assert report.comparison is not None, report.not_compared
            assert all(view.equal and view.new_rows >= 50 for view in report.comparison.values())
            life.wait_for_batches()  # its runner has moved on to the new generation
            rollback(env, first)
            life.wait_for_batches()
        life.wait_for_looks(LOOKS)
    say(f"FACTFOLD_KILLS={KILLS}: {life.looks} looks at {tickets.sent} tickets")
    states = [state.status for state in env.store.states(first.name)]
    assert sorted(states) == [*["retired"] * KILLS, "serving"]
    assert [reader.wrong for reader in life.readers] == [(0, 0, 0)] * READERS
    assert life.looks >= LOOKS
    with open_runner(env, first) as runner:
        runner.catch_up()
    assert rows_of(env) == tickets.sent
    assert verify(env, first)["ticket_rows"].equal
