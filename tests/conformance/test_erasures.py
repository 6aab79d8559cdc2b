"""What an erasure leaves: nothing in files and snapshots, and keys in every store of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    Aggregate,
    AsyncSqlEventStore,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    Personal,
    SqlEventStore,
    SqlKeyStore,
    command,
    event,
)
from eventstore.erasure import FollowedKeys
from eventstore.errors import DeclarationError
from eventstore.snapshots import AggregateSnapshot, Snapshots, shape_of
from eventstore.testing.key_stores import FollowedKeysConformance
from tests.vault import Vault

OLD = os.urandom(32)
MASTER, LATER = MasterKeys({"one": OLD}), MasterKeys({"two": os.urandom(32), "one": OLD})
SUBJECTS = [str(number) for number in range(400)]


class Guest(Aggregate):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="(erased)")]


class Files:
    """A store, and the bytes of its key table's files."""

    def __init__(self, store, read):
        self.store, self.read = store, read

    def wrapped(self):
        keys = self.store.tables.subject_keys.c
        query = sa.select(keys.subject, keys.wrapped).where(keys.wrapped.is_not(None))
        with self.store.engine.connect() as database:
            return {subject: bytes(wrapped) for subject, wrapped in database.execute(query)}


@pytest.fixture(params=["sqlite", "postgres"])
def files(request, tmp_path):
    is_sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/club.db" if is_sqlite else request.getfixturevalue("database")()
    with SqlEventStore(url, keys=MASTER) as store:
        store.create_tables()
        for subject in SUBJECTS[:3]:
            store.append(f"guest-{subject}", [Guest.Joined(name="Ada")], expected=ANY)
        with SqlKeyStore(store.engine, MASTER) as keys:
            keys.keys_for(SUBJECTS)

        def of_sqlite() -> bytes:
            return b"".join(path.read_bytes() for path in sorted(tmp_path.glob("club.db*")))

        def of_postgres() -> bytes:
            with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as database:
                database.exec_driver_sql("checkpoint")
                found = database.exec_driver_sql("select pg_read_binary_file(pg_relation_filepath('subject_keys'))")
                return bytes(found.scalar_one())

        yield Files(store, of_sqlite if is_sqlite else of_postgres)


def test_an_erased_key_is_in_no_file(files):
    wrapped = files.wrapped()
    for subject in ("0", "1", "17", "200", "399"):
        assert files.store.erase(subject).left == []
        assert wrapped[subject] not in files.read()
    assert wrapped["2"] in files.read()


def test_a_key_that_a_key_store_erases_is_in_no_file(files):
    wrapped = files.wrapped()
    with SqlKeyStore(files.store.engine, MASTER) as keys:
        keys.erase("17")
    assert wrapped["17"] not in files.read()


def test_a_key_that_an_import_erases_is_in_no_file(files, tmp_path):
    wrapped = files.wrapped()
    files.store.export_file(tmp_path / "club.jsonl", keys=True)
    with SqlEventStore(f"sqlite:///{tmp_path}/other.db", keys=MASTER) as other:
        other.create_tables()
        other.import_file(tmp_path / "club.jsonl", keys=True)
        other.erase("1")
        other.export_file(tmp_path / "erased.jsonl", keys=True)
    assert files.store.import_file(tmp_path / "erased.jsonl", keys=True, erasures=True).keys == 1
    assert wrapped["1"] not in files.read()


def test_after_a_rotation_no_file_holds_a_key_as_it_was_wrapped(files):
    wrapped = files.wrapped()
    with SqlKeyStore(files.store.engine, LATER) as keys:
        assert keys.rotate() == len(SUBJECTS)
    if files.store.engine.dialect.name == "postgresql":  # as docs/how-to/erase-a-person.md says
        with files.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as database:
            database.exec_driver_sql("vacuum full subject_keys")
    held = files.read()
    assert [subject for subject, former in wrapped.items() if former in held] == []


def test_an_erasure_says_what_an_open_transaction_keeps(files):
    """It is told and no error; the erasure counts at once, and repeated it removes the rest."""
    wrapped = files.wrapped()
    with files.store.engine.connect() as reader:
        if reader.dialect.name == "postgresql":
            reader = reader.execution_options(isolation_level="REPEATABLE READ")
        reader.exec_driver_sql("begin") if reader.dialect.name == "sqlite" else None
        reader.execute(sa.select(files.store.tables.subject_keys)).all()
        done = files.store.erase("1")
        assert done.keys == 1
        assert len(done.left) == 1
        assert "erase again" in done.left[0]
        reader.rollback()
    again = files.store.erase("1")
    assert (again.keys, again.left) == (0, [])
    assert wrapped["1"] not in files.read()


def test_a_failure_to_remove_is_told_and_no_error(files, monkeypatch):
    def refuse(*_: Any) -> None:
        raise sa.exc.OperationalError("vacuum", {}, Exception("secret"))

    monkeypatch.setattr(type(files.store._database.dialect), "scrub", refuse)
    done = files.store.erase("1")
    assert done.keys == 1
    assert [text for text in done.left if "failed" in text and "secret" not in text] == list(done.left) != []


async def test_a_store_on_a_loop_removes_it_too(tmp_path):
    async with AsyncSqlEventStore(f"sqlite+aiosqlite:///{tmp_path}/club.db", keys=MASTER) as store:
        await store.create_tables()
        await store.append("guest-1", [Guest.Joined(name="Ada")], expected=ANY)
        keys = store.sync_store.tables.subject_keys
        async with store.engine.connect() as database:
            former = (await database.execute(sa.select(keys.c.wrapped))).scalar_one()
        assert (await store.erase("1")).left == []
    assert former not in b"".join(path.read_bytes() for path in tmp_path.glob("club.db*"))


async def test_a_store_on_a_loop_vacuums_postgres(database):
    async with AsyncSqlEventStore(database(), keys=MASTER) as store:
        await store.create_tables()
        await store.append("guest-1", [Guest.Joined(name="Ada")], expected=ANY)
        assert ((done := await store.erase("1")).keys, done.left) == (1, [])


# ---- no aggregate snapshot outlives an erasure, and none holds in clear what the events hold sealed


class Member(Aggregate):
    name: str = ""
    visits: int = 0

    @event
    class Joined:
        name: Annotated[str, Personal(erased="(erased)")]

    @event
    class Visited:
        door: str

    @command
    def join(self, name: str) -> None:
        self.emit(self.Joined(name=name))

    @command
    def visit(self, meanwhile: Callable[[], object]) -> None:
        meanwhile()
        self.emit(self.Visited(door="north"))

    def on_joined(self, e: Joined) -> None:
        self.name = e.name

    def on_visited(self, e: Visited) -> None:
        self.visits += 1


@pytest.fixture
def store():
    return MemoryEventStore()


def test_a_command_under_way_across_an_erasure_leaves_nothing_of_the_person(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, every=1, cached=10))
    dispatcher.send("7", Member.join, "Ada")
    dispatcher.send("7", Member.visit, lambda: store.erase("7"))
    kept = store.snapshot("member-7")
    assert kept is None or b"Ada" not in kept.payload
    assert dispatcher.load(Member, "7").name == "(erased)"
    assert dispatcher.load(Member, "7").visits == 1


def test_no_snapshot_of_an_aggregate_with_personal_events_is_kept_and_a_warning_says_so_once(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, every=2))
    with capture_logs() as logged:
        dispatcher.send("7", Member.join, "Ada")
        for _ in range(4):
            dispatcher.send("7", Member.visit, lambda: None)
    assert store.snapshot("member-7") is None
    assert [entry["aggregate"] for entry in logged if "no aggregate snapshots" in entry["event"]] == ["Member"]
    assert "Ada" not in str(logged)


def test_one_that_is_asked_for_is_refused(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store))
    dispatcher.send("7", Member.join, "Ada")
    with pytest.raises(DeclarationError, match="would outlive an erasure") as refused:
        dispatcher.take_snapshot(Member, "7")
    assert "Ada" not in str(refused.value)
    assert store.snapshot("member-7") is None


def test_one_that_an_earlier_release_kept_is_not_loaded_and_goes_with_the_erasure(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store))
    dispatcher.send("7", Member.join, "Ada")
    state = dispatcher.load(Member, "7")
    state.name = "Ada of the snapshot"
    store.save_snapshot(AggregateSnapshot("member-7", 0, shape_of(Member).encode(state)))
    assert dispatcher.load(Member, "7").name == "Ada"
    assert store.erase("7").snapshots == 1
    assert store.snapshot("member-7") is None


# ---- the key stores of the package are key stores, and an author of another one has what it takes


WRAPPING = MasterKeys({"one": os.urandom(32)})


def of_a_store(url):
    with SqlEventStore(url) as store:
        store.create_tables()
        with SqlKeyStore(store.engine, WRAPPING) as keys:
            yield keys


class TestSqliteKeys(FollowedKeysConformance):
    @pytest.fixture
    def keys(self, tmp_path: Path) -> Iterator[FollowedKeys]:
        yield from of_a_store(f"sqlite:///{tmp_path}/keys.db")


class TestPostgresKeys(FollowedKeysConformance):
    @pytest.fixture
    def keys(self, request: pytest.FixtureRequest) -> Iterator[FollowedKeys]:
        yield from of_a_store(request.getfixturevalue("database")())


class TestKeysOfOnesOwn(FollowedKeysConformance):
    @pytest.fixture
    def keys(self) -> FollowedKeys:
        return Vault()


def test_what_authors_need_is_loaded_without_a_client():
    use = "from eventstore.erasure import DataKey, FollowedKeys, KeyStore, new_data_key"
    code = f"import sys; {use}; assert not {{'sqlalchemy', 'fastavro', 'cryptography'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
