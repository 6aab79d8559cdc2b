"""After an erasure the database's files hold the wrapped key no more, or the erasure says what keeps it."""

from __future__ import annotations

import os
from typing import Annotated, Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, AsyncSqlEventStore, MasterKeys, Personal, SqlEventStore, SqlKeyStore, event

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
