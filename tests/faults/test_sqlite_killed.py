"""A process that keeps views in SQLite is killed with -9 at random, again and again: state, view and progress agree.

Without Spark, so that a kill costs a second; a process with Spark is killed in test_projection_killed.py.
FACTFOLD_KILLS (1 in make test) and FACTFOLD_SEED as there; 5 kills for each one there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from projections.stores.sqlite import SqliteTableStore
from tests.conformance.ticket_batches import COLUMNS, GROUP, served

ROOT = Path(__file__).parents[2]
KILLS = 5 * int(os.environ.get("FACTFOLD_KILLS", "1"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))


@pytest.fixture
def store(tmp_path):
    opened = SqliteTableStore(tmp_path / "views.db")
    opened.prepare()
    served(opened)
    yield opened
    opened.close()


def killed_after(store, seconds):
    """Run batches in a process of their own and kill it so many seconds after its first."""
    arguments = [sys.executable, "-m", "tests.conformance.ticket_batches", store.path]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().strip().isdigit()
        time.sleep(seconds)  # the moment of the kill, and no wait for anything
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)


def state_view_and_progress(store):
    """The number of the batch that each of them shows."""
    run, layout = store.serving(GROUP, COLUMNS)
    with store.transaction() as connection:
        state = connection.scalar(sa.select(layout.tables["tickets"].state.c.hours))
        view = connection.scalar(sa.select(layout.views["ticket_names"].view.c.hours))
    return [int(float(state or 0)), int(float(view or 0)), store.progress(run)["ticket"][0]]


def test_a_killed_process_leaves_state_view_and_progress_of_one_batch(store):
    moment, reached = random.Random(SEED), 0
    for _ in range(KILLS):
        killed_after(store, moment.uniform(0.05, 0.4))
        state, view, progress = state_view_and_progress(store)
        assert state == view == progress
        assert progress > reached
        reached = progress
