"""The disk of the views is full: the run says so, writes nothing of the batch, and goes on once there is room."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore import Restarts
from factfold.stack.processes import server_account
from projections import Environment, Follower, ProjectionGroup, Table, rebuild, verify, view
from projections.spark.session import small_batch_session
from projections.stores.postgres import PostgresTableStore
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.waiting import wait_until

NOTES = sa.Table("notes", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("body", sa.Text))
notes = Table.from_changelog(NOTES, topic="shop.public.notes")


@view(key="id")
def bodies(notes):
    return notes.select("id", "body")


GROUP = ProjectionGroup("notes", [bodies])
LARGE = 6_000  # rows of some kilobyte: more than the disk has, in any form
SMALL_DISK = {"SQLite": "4m", "PostgreSQL": "20m"}


class SmallDisk:
    """A file system in memory, of a size that can be changed; where the server's account finds it too."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="factfold-disk-"))

    def mount(self, size: str) -> None:
        """Make it; a declared skip where this process may not."""
        options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.folder)]
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a file system of a size needs root's rights: {done.stderr.strip()}")

    def grow(self) -> None:
        """Make room."""
        subprocess.run(["mount", "-o", "remount,size=300m", str(self.folder)], check=True)

    def unmount(self) -> None:
        """Take it away."""
        subprocess.run(["umount", str(self.folder)], check=True)
        self.folder.rmdir()


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.faults)])
def disk_and_store(request):
    """A store whose tables are on a small disk."""
    with ExitStack() as undo:
        disk = SmallDisk()
        disk.mount(SMALL_DISK[request.param])
        undo.callback(disk.unmount)
        if request.param == "SQLite":
            store = SqliteTableStore(disk.folder / "views.db")
        else:
            store = postgres_on(disk, request.getfixturevalue("stack"), undo)
        undo.callback(store.close)
        store.prepare()
        yield disk, store


def postgres_on(disk, stack, undo):
    """A database in a tablespace of the disk."""
    if account := server_account():
        account.own(disk.folder)
    name = f"small_{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")

    def run(statement):
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    run(f"CREATE TABLESPACE {name} LOCATION '{disk.folder}'")
    undo.callback(engine.dispose)
    undo.callback(run, f"DROP TABLESPACE {name}")
    run(f"CREATE DATABASE {name} TABLESPACE {name}")
    undo.callback(run, f"DROP DATABASE {name} WITH (FORCE)")
    return PostgresTableStore(stack.info.postgres.url(name))


def test_a_full_disk_costs_no_row_and_is_left_behind_when_there_is_room(disk_and_store, spark):
    disk, store = disk_and_store
    environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
    changes = ChangeWriter(environment.log)
    changes.put(notes, {"id": 0, "body": "first"})
    rebuild(environment, GROUP)
    for number in range(1, LARGE):
        changes.put(notes, {"id": number, "body": f"{number} " + "x" * 1_000})
    stop, causes = threading.Event(), []
    follower = Follower(environment=environment, group=GROUP, policy=Restarts(limit=1_000, first=0.2, longest=0.5))
    following = threading.Thread(target=lambda: causes.append(ended(follower, stop)))
    following.start()
    try:
        wait_until(lambda: follower.failures >= 2, alive=lambda: alive(following, causes), what="the disk to be full")
        assert rows(store) == 1
        disk.grow()
        wait_until(lambda: rows(store) == LARGE, alive=lambda: alive(following, causes), what="the views")
    finally:
        stop.set()
        following.join(60)
    assert verify(environment, GROUP)["bodies"].equal


def ended(follower, stop):
    """What ended the follower."""
    try:
        follower.run(stop=stop)
    except Exception as error:
        return error


def alive(thread, causes):
    assert thread.is_alive(), f"the follower has ended: {causes}"


def rows(store):
    with store.looking() as connection:
        return connection.scalar(sa.text("SELECT count(*) FROM bodies"))
