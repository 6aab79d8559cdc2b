"""A destroyed key stays destroyed wherever in a rotation the erasure comes, or in an erasure the rotation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

from eventstore import MasterKeys, SqlEventStore, SqlKeyStore
from eventstore.backends.sql.greenlets import in_greenlet
from eventstore.errors import StoreUnavailable

OLD, NEW = os.urandom(32), os.urandom(32)
BEFORE, AFTER = MasterKeys({"one": OLD}), MasterKeys({"two": NEW, "one": OLD})
MOST_STATEMENTS = 30

Work = Callable[[SqlKeyStore], int]
Run = Callable[[sa.Engine, Work], int]


def at_once(engine, work):
    return work(SqlKeyStore(engine, AFTER))


def on_a_loop(engine, work):
    """Do the work as services on asyncio do, by an engine of theirs on the same database."""
    driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}[engine.dialect.name]

    async def worked() -> int:
        own = create_async_engine(engine.url.set(drivername=driver), poolclass=NullPool)
        for statement in engine.dispatch.before_cursor_execute:
            sa.event.listen(own.sync_engine, "before_cursor_execute", statement)
        try:
            return await in_greenlet(at_once, own.sync_engine, work)
        finally:
            await own.dispose()

    return asyncio.run(worked())


class Store:
    """A database, an engine for what is interrupted, and one for what comes between."""

    def __init__(self, engine, between, run):
        self._engine, self._between, self._run = engine, between, run
        with SqlEventStore(engine) as store:
            store.create_tables()

    def interrupt(self, work, other, number):
        """Do the work, with the other before a statement of it; say if it had so many. What was refused is repeated."""
        seen, refused = 0, list[Work]()

        def intervene(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                attempt(other, lambda: other(self.keys(self._between)))

        def attempt(what: Work, call: Callable[[], int]) -> None:
            try:
                call()
            except StoreUnavailable:
                refused.append(what)

        sa.event.listen(self._engine, "before_cursor_execute", intervene)
        attempt(work, lambda: self._run(self._engine, work))
        sa.event.remove(self._engine, "before_cursor_execute", intervene)
        for what in refused:
            what(self.keys(self._between))
        return seen >= number

    def keys(self, engine=None, master=AFTER):
        return SqlKeyStore(engine or self._engine, master)

    def close(self):
        self._engine.dispose()
        self._between.dispose()


def sqlite(url):
    return sa.create_engine(url), sa.create_engine(url, connect_args={"timeout": 0})


def shared_connection():
    """A database in memory, whose one connection all threads share: a transaction of one ends that of another."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    return engine, engine


def postgres(url, **options):
    impatient = {"options": "-c lock_timeout=20ms"}
    return sa.create_engine(url, **options), sa.create_engine(url, connect_args=impatient)


@pytest.fixture(
    params=[
        *("sqlite", "sqlite in memory", "postgres", "postgres in autocommit"),
        *(pytest.param(on, marks=pytest.mark.faults) for on in ("sqlite on a loop", "postgres on a loop")),
    ]
)
def store(request, tmp_path):
    name, _, how = request.param.partition(" ")
    if name == "postgres":
        options = {"isolation_level": "AUTOCOMMIT"} if how == "in autocommit" else {}
        engines = postgres(request.getfixturevalue("database")(), **options)
    else:
        engines = shared_connection() if how == "in memory" else sqlite(f"sqlite:///{tmp_path}/keys.db")
    opened = Store(*engines, on_a_loop if how == "on a loop" else at_once)
    yield opened
    opened.close()


@pytest.mark.parametrize("interrupted", ["rotation", "erasure"])
def test_a_destroyed_key_stays_destroyed_at_every_statement(store, interrupted):
    for number in range(1, MOST_STATEMENTS):
        made = store.keys(master=BEFORE).keys_for([f"erased-{number}", f"other-{number}"])
        erased, other = made[f"erased-{number}"].id, made[f"other-{number}"]

        def erase(keys: SqlKeyStore, subject: str = f"erased-{number}") -> int:
            return keys.erase(subject)

        both = (SqlKeyStore.rotate, erase) if interrupted == "rotation" else (erase, SqlKeyStore.rotate)
        if not store.interrupt(*both, number):
            break
        keys = store.keys(master=MasterKeys({"two": NEW}))
        assert keys.keys([erased, other.id]) == {erased: None, other.id: other}
        assert (keys.erasures(), keys.destroyed(number - 1, number)) == (number, [erased])
    assert 1 < number < MOST_STATEMENTS - 1
