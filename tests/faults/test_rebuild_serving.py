"""T10: a view is read all the time, while tickets arrive and its generations are rebuilt, switched and rolled back.

FACTFOLD_KILLS sets how many rebuilds are killed and resumed, one after the other: 1 in make test, with two readers; ten
readers where there are more. A killed rebuild is one whose process does nothing any more, the one of SIGKILL is in
test_rebuild_killed.py. The planted fault is a cut-over that does not wait for the new generation.
"""

from __future__ import annotations

import os

import pytest

from projections import cut_over, open_runner, rebuild, rollback, verify
from projections.catching_up import CatchUp
from projections.tablestore import runs
from projections.tablestore.sqlite import SqliteTableStore
from tests.integration.log_writer import LogWriter
from tests.integration.rebuild_watching import Killed, Life, Sightings, growing_group, killed_at, opened, rows_of
from tests.integration.tickets import Ticket

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
READERS = 2 if KILLS == 1 else 10


@pytest.fixture
def env(request, environment, tmp_path):
    """Views in an empty database."""
    on_sqlite = getattr(request, "param", None) == "SQLite"
    return environment(SqliteTableStore(tmp_path / "views.db") if on_sqlite else None)


@pytest.fixture
def writer(env):
    return LogWriter(env.log.settings, Ticket)


@pytest.mark.parametrize(
    "env",
    [
        "PostgreSQL",
        pytest.param("SQLite", marks=pytest.mark.skipif(KILLS == 1, reason="make faults has the time for both")),
    ],
    indirect=True,
)
def test_readers_never_go_back_in_time_while_generations_are_rebuilt_switched_and_rolled_back(env, writer):
    first, second = growing_group(writer), growing_group(writer)
    writer.send(opened(writer, 0, 50))
    rebuild(env, first)
    life = Life(env, first, writer, begun=50, readers=READERS)
    with life.going_on():
        for _ in range(KILLS):
            life.wait_for_batches()
            with pytest.raises(Killed):
                rebuild(env, second, on_progress=killed_at("views"))
            report = rebuild(env, second)
            assert (report.resumed, report.serves) == (True, True)
            assert report.comparison is not None, report.not_compared
            assert all(view.equal and view.new_rows >= 50 for view in report.comparison.values())
            life.wait_for_batches()  # its runner has moved on to the new generation
            rollback(env, first)
            life.wait_for_batches()
    states = [state.status for state in env.store.states(first.name)]
    assert sorted(states) == [*["retired"] * KILLS, "serving"]
    for reader in life.readers:
        assert (reader.backwards, reader.looks > 100 * KILLS) == ([], True)
    with open_runner(env, first) as runner:
        runner.catch_up()
    assert rows_of(env) == life.sent
    assert verify(env, first)["ticket_rows"].equal


def test_the_planted_fault_is_seen_a_cut_over_that_does_not_wait_for_the_new_generation(env, writer, monkeypatch):
    group, reader = growing_group(writer), Sightings()
    writer.send(opened(writer, 0, 30))
    rebuild(env, group)
    rebuild(env, group, cut_over=False)
    writer.send(opened(writer, 30, 10))
    with open_runner(env, group) as runner:
        runner.catch_up()
    reader.see(rows_of(env))
    with monkeypatch.context() as patched:
        patched.setattr(CatchUp, "bring_beyond", lambda *arguments, **options: None)
        patched.setattr(runs, "is_ahead", lambda *arguments, **options: True)
        cut_over(env, group)
    reader.see(rows_of(env))
    assert reader.backwards == [(40, 30)]
