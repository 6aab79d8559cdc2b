"""T6: 64 writers on one stream and on 64, some killed in the middle of their calls.

Eight processes of eight writers; one of the eight (more than 10 % of the writers) is killed with -9, FACTFOLD_KILLS
times, and another started. Versions are dense, what was acknowledged is stored, and every refusal told the version that
the stream really had: more than its writer saw before, no more than it saw next.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore import SqlEventStore
from tests.faults.append_writers import Tally
from tests.waiting import wait_until

pytestmark = pytest.mark.faults  # eight processes of eight writers
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
PROCESSES = 8
PATIENCE = max(240, 48 * KILLS)  # seconds, for all that steady writers append
APPENDS = {"one": 4 * KILLS, "own": 40 * KILLS}  # each writer's


@pytest.fixture
def store(database):
    engine = sa.create_engine(database(), poolclass=sa.NullPool)
    with SqlEventStore(engine) as opened:
        opened.create_tables()
        opened.register(Tally)
        yield opened
    engine.dispose()


class Writers:
    """A process of writers and what it told."""

    def __init__(self, store, folder, name, *options):
        self._told = folder / f"{name}.jsonl"
        url = store.engine.url.render_as_string(hide_password=False)
        arguments = [sys.executable, "-m", "tests.faults.append_writers", url, name, *options]
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(arguments, cwd=ROOT, stdout=told)

    def told(self):
        """What it told; a line that was cut by the kill is not one."""
        return [json.loads(line) for line in self._told.read_bytes().split(b"\n")[:-1]]

    def kill(self, moment):
        """Kill it while it is at work; return whether that was in the middle of a call."""
        wait_until(lambda: any("stored" in fact for fact in self.told()), what="an append")
        time.sleep(moment.uniform(0, 0.1))  # the moment of the kill, and no wait for anything
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        facts = self.told()
        return len([f for f in facts if "begun" in f]) > len([f for f in facts if "ended" in f])

    def finish(self):
        assert self.process.wait(PATIENCE) == 0


def wrong(store, facts):
    """What is wrong (gaps, acknowledgements in vain, odd versions in refusals), and how many refusals there were."""
    versions, stored = {}, set()
    for recorded in store.read_all():
        versions.setdefault(recorded.stream, []).append(recorded.version)
        stored.add((recorded.stream, recorded.version, recorded.data["writer"], recorded.data["number"]))
    gaps = [stream for stream, found in versions.items() if found != list(range(len(found)))]
    in_vain = [fact["stored"] for fact in facts if "stored" in fact and tuple(fact["stored"]) not in stored]
    bounds = list(refusals(facts, head=max((found[-1] for found in versions.values()), default=-1)))
    odd = [(seen, actual, later) for seen, actual, later in bounds if not seen < actual <= later]
    return [*gaps, *in_vain, *odd], len(bounds)


def refusals(facts, *, head):
    """Each refusal's version, between what its writer saw before and what it saw after; at the end, the last head."""
    seen, open_ends = {}, {}
    for fact in facts:
        writer = fact.get("writer")
        if "begun" in fact:
            before, seen[writer] = seen.get(writer), -1 if fact["seen"] is None else fact["seen"]
            if writer in open_ends:
                yield before, open_ends.pop(writer), seen[writer]
        elif "refused" in fact:
            open_ends[writer] = fact["refused"]
    yield from ((seen[writer], actual, head) for writer, actual in open_ends.items())


@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("streams", ["one", "own"])
def test_versions_are_dense_and_what_was_acknowledged_is_stored(store, tmp_path, streams):
    moment, options = random.Random(SEED), (streams, str(APPENDS[streams]))
    steady = [Writers(store, tmp_path, f"w{n}", *options) for n in range(PROCESSES - 1)]
    told, mid_call = [], 0
    for kill in range(3 * KILLS):  # on a busy machine some fall between two calls
        if mid_call < KILLS:
            victim = Writers(store, tmp_path, f"v{kill}", streams, "100000")
            mid_call += victim.kill(moment)
            told += victim.told()
    for writers in steady:
        writers.finish()
        told += writers.told()
    found, refused = wrong(store, told)
    assert found == [], f"FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED}"
    assert mid_call == KILLS, "a kill met nobody in the middle of a call"
    assert (refused > 0) == (streams == "one"), "nobody was in anybody's way" if streams == "one" else "refused in vain"
