"""T3: Kafka Connect is killed with -9 while rows are written, changed and deleted; nothing is lost, nothing repeated.

FACTFOLD_KILLS chooses the size: 1 is one kill over 3,000 rows (make test), up to 5 three over 40,000 (make faults),
more than that ten over 200,000 (make faults-full). FACTFOLD_SEED chooses the rows; both are printed. Each kill falls
into a part of the load of which the topic holds some, and not all. With exactly-once on, the default, readers of
committed records see each change once. Without it (the worker's setting; make faults only) changes are repeated,
counted, and do not reach a view: rows come back after they were deleted, and batches end inside what is repeated.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from cdc import apply_connector
from eventstore import Settings
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.topics import TopicRecord, schemas_topic
from factfold.stack import connect as worker
from projections import ProjectionGroup, Table, open_runner, rebuild, view
from tests.faults.parcel_load import PARCELS, ParcelLoad, changes_in, lost_and_repeated, newest_rows
from tests.integration.conftest import Captured
from tests.waiting import wait_until

CHOSEN = int(os.environ.get("FACTFOLD_KILLS", "1"))
KILLS, ROWS = (1, 3_000) if CHOSEN == 1 else (3, 40_000) if CHOSEN <= 5 else (10, 200_000)
SEED = int(os.environ.get("FACTFOLD_SEED", "1815"))
SAME = f"; replay: FACTFOLD_KILLS={CHOSEN} FACTFOLD_SEED={SEED} pytest {__file__}"
PART = ROWS // (KILLS + 1)
BATCH = ROWS // 100  # records; a kill repeats more
BACK_WITHIN = 30.0  # seconds from the restart to the first new record: reliability.md


class Depot(Captured):
    """A database whose table is captured, and what its topic holds."""

    def __init__(self, stack, client, **extra):
        name = f"depot_{uuid.uuid4().hex[:8]}"
        admin = sa.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        admin.dispose()
        super().__init__(stack, client, sa.create_engine(stack.info.postgres.url(name)), name)
        PARCELS.create(self.engine)
        self.settings = Settings.for_broker(stack.info.bootstrap_servers)
        self.declared = self.source(tables=("public.parcels",), extra=extra)
        self.topic = self.declared.topic("public.parcels")
        ensure_topics(self.settings, self.declared.topic_specs)
        apply_connector(client, self.prepared(self.declared), source=self.engine)
        self.offsets = OffsetReader(self.settings)

    def written(self):
        """Records sent to the topic, committed or not."""
        return sum(self.offsets.end_offsets([self.topic], committed=False)[self.topic].values())

    def records(self) -> list[TopicRecord]:
        return list(read_range(self.settings, self.topic, deadline=60))

    def parcels(self):
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(PARCELS))
            return {row.id: (row.version, row.weight) for row in found}

    def wait_until_captured(self):
        asked = sa.text(
            "SELECT confirmed_flush_lsn >= CAST(:goal AS pg_lsn) FROM pg_replication_slots WHERE slot_name = :slot"
        )
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            goal = connection.scalar(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)"))
            given = {"goal": goal, "slot": self.declared.slot}
            wait_until(lambda: connection.scalar(asked, given), what=f"the slot at {goal}")

    def kill_within(self, load):
        """Write a part, kill the worker in the middle of it; returns the seconds from its restart to a new record."""
        before = self.written()
        load.start(PART)
        wait_until(lambda: self.written() > before + PART // 4, what="the first records of the part", pause=0.001)
        self.stack.kill("connect")
        load.finish()
        at_kill = self.written()
        assert changes_in(self.records()) != load.expected, "everything was there at the kill: write more"
        begun = time.monotonic()
        self.stack.start("connect")
        wait_until(lambda: self.written() > at_kill, what="a record after the restart")
        return time.monotonic() - begun

    def remove(self):
        self.offsets.close()
        super().remove()


@pytest.fixture
def depot(stack, connect) -> Iterator[Depot]:
    depot = Depot(stack, connect)
    yield depot
    depot.remove()


@pytest.fixture
def repeating_depot(stack, connect, monkeypatch) -> Iterator[Depot]:
    """With a worker that sends at least once; afterwards it is as it was."""
    usual = worker.common_properties
    with monkeypatch.context() as patched:
        patched.setattr(worker, "common_properties", lambda: usual() | {"exactly.once.source.support": "disabled"})
        restart(stack)
        depot = Depot(stack, connect, **{"exactly.once.support": "requested"})
        yield depot
        depot.remove()
    restart(stack)


def restart(stack):
    stack.stop("connect")
    stack.start("connect")


@pytest.mark.timeout(max(300, 120 * KILLS))
def test_with_exactly_once_on_nothing_is_lost_and_nothing_is_repeated(depot, say):
    load = ParcelLoad(depot.engine, SEED)
    back = [depot.kill_within(load) for _ in range(KILLS)]
    load.start(PART)
    load.finish()
    depot.wait_until_captured()
    say(f"{KILLS} kills, {load.expected.total():,} changes, back after {max(back):.1f} s at most{SAME}")
    records = depot.records()
    assert lost_and_repeated(load.expected, changes_in(records)) == (0, 0)
    assert newest_rows(records) == depot.parcels() == load.rows
    assert max(back) <= BACK_WITHIN


def parcel_group(depot):
    parcels = Table.from_changelog(PARCELS, topic=depot.topic)

    def parcel_rows(parcels):
        return parcels

    return ProjectionGroup(depot.name, [view(key="id", tables={"parcels": parcels})(parcel_rows)])


def shown(environment):
    with environment.store.transaction() as connection:
        found = connection.execute(sa.text("SELECT id, version, weight FROM parcel_rows"))
        return {row.id: (row.version, row.weight) for row in found}


def apply_in_parts(runner):
    """Apply what has come in batches that end inside what is repeated."""
    while runner.run_once(max_records=BATCH):
        pass


@pytest.mark.faults  # two more restarts of the worker
@pytest.mark.timeout(max(600, 180 * KILLS))
def test_with_at_least_once_nothing_is_lost_and_what_is_repeated_reaches_no_view(repeating_depot, environment, say):
    depot, load, views = repeating_depot, ParcelLoad(repeating_depot.engine, SEED), environment()
    ensure_topics(depot.settings, [schemas_topic()])
    group = parcel_group(depot)
    rebuild(views, group)
    with open_runner(views, group) as runner:
        back = []
        for _ in range(KILLS):
            back.append(depot.kill_within(load))
            apply_in_parts(runner)
        load.start(PART)
        load.finish()
        depot.wait_until_captured()
        apply_in_parts(runner)
        runner.catch_up()
    records = depot.records()
    lost, repeated = lost_and_repeated(load.expected, changes_in(records))
    say(f"at least once: {KILLS} kills, {load.expected.total():,} changes, {repeated:,} repeated,"
        f" back after {max(back):.1f} s at most{SAME}")  # fmt: skip
    assert lost == 0
    assert repeated > 0, "no kill made a record twice, so nothing was kept from the view: kill later"
    assert shown(views) == depot.parcels() == load.rows
    assert max(back) <= BACK_WITHIN
