"""T7: transactions that stay open, are rolled back, or append late; readers skip nothing and see every stream in order.

64 writers, of whose commits 20 % are delayed and 5 % rolled back; one transaction writes at once and stays open for 30
seconds, another begins early and appends to everybody's streams at the end. Replay with FACTFOLD_SEED.
"""

from __future__ import annotations

import os
import threading
import time

import pytest
import sqlalchemy as sa

from eventstore import ANY, NO_STREAM, SqlEventStore
from tests.fence_load import FencedReader, Meter, disordered, under_load
from tests.waiting import wait_until

pytestmark = pytest.mark.faults  # 64 writers, and seconds that a transaction stays open
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
WRITERS, APPENDS, READERS, OPEN_SECONDS = 64, 60, 3, 30


@pytest.fixture
def store(database):
    engine = sa.create_engine(database(), pool_size=WRITERS + READERS + 4)
    with SqlEventStore(engine) as opened:
        opened.create_tables()
        opened.register(Meter)
        yield opened
    engine.dispose()


class Ages:
    """The greatest age of the fence that was ever told, and by whom it was held."""

    def __init__(self, store):
        self._store, self.oldest, self.holders = store, 0.0, set()

    def look(self):
        fence = self._store.fence()
        self.oldest = max(self.oldest, fence.age or 0.0)
        self.holders.add((fence.holder or "").partition(" of ")[0])


def stay_open(store, began, over):
    with store.engine.connect() as slow, slow.begin():
        slow.exec_driver_sql("set application_name to 'nightly import'")
        store.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        began.set()
        over.wait(OPEN_SECONDS)


@pytest.mark.timeout(300)
def test_readers_skip_nothing_and_see_every_stream_in_order(store):
    fenced, ages = [FencedReader(store) for _ in range(READERS)], Ages(store)
    began, never = threading.Event(), threading.Event()
    sleeper = threading.Thread(target=stay_open, args=(store, began, never))
    sleeper.start()
    began.wait()
    begun = time.monotonic()

    def poll():
        for reader in fenced:
            reader.poll()
        ages.look()

    with store.engine.connect() as early, early.begin():
        early.exec_driver_sql("select pg_current_xact_id()")
        committed = under_load(store, poll, writers=WRITERS, appends=APPENDS, seed=SEED)
        assert all(reader.seen == [] for reader in fenced), "somebody was shown what an open transaction may precede"
        late = [f"meter-{number}" for number in range(WRITERS)]
        committed += [
            (stream, store.append(stream, [Meter.Read(number=0)], expected=ANY, connection=early).version)
            for stream in late
        ]
    while sleeper.is_alive():
        poll()
    assert time.monotonic() - begun >= OPEN_SECONDS - 1
    # What was rolled back holds nobody up: as soon as the last one has ended, everything is there.
    wait_until(lambda: store.fence().waiting == 0, what="the fence", within=5)
    poll()
    committed.append(("meter-slow", 0))
    for reader in fenced:
        assert sorted(reader.seen) == sorted(committed), f"FACTFOLD_SEED={SEED}"
        assert disordered(reader.seen) == []
    assert ages.oldest > OPEN_SECONDS * 0.8
    assert "nightly import" in ages.holders
