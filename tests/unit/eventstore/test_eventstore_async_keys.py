"""A key store of one's own keeps nobody on the loop waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, TypeVar
from uuid import UUID

import pytest

from eventstore import ANY, Aggregate, AsyncSqlEventStore, Personal, event
from eventstore.backends.memory_keys import MemoryKeys
from eventstore.erasure import DataKey

T = TypeVar("T")


class Guest(Aggregate):
    @event
    class Invited:
        name: Annotated[str, Personal(erased="(erased)")]


class Remote(MemoryKeys):
    """Answers once the loop has had a turn, as a service does after a while; a loop that waits for it never has one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.turned = threading.Event(), threading.Event()
        self.blocked: list[str] = []

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        return self._after_a_turn("keys_for", lambda: super(Remote, self).keys_for(subjects))

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        return self._after_a_turn("keys", lambda: super(Remote, self).keys(ids))

    def erase(self, subject: str) -> int:
        return self._after_a_turn("erase", lambda: super(Remote, self).erase(subject))

    def _after_a_turn(self, call: str, answer: Callable[[], T]) -> T:
        self.turned.clear()
        self.asked.set()
        if not self.turned.wait(2):
            self.blocked.append(call)
        return answer()


async def turns(keys: Remote) -> None:
    while True:
        await asyncio.sleep(0.001)
        if keys.asked.is_set():
            keys.turned.set()


@pytest.mark.parametrize("own_transaction", [True, False])
async def test_the_loop_goes_on_while_keys_are_asked_for(tmp_path, own_transaction):
    keys = Remote()
    async with AsyncSqlEventStore(f"sqlite+aiosqlite:///{tmp_path}/guests.db", keys=keys) as store:
        await store.create_tables()
        await store.register(Guest)
        turning = asyncio.create_task(turns(keys))
        if own_transaction:
            await store.append("guest-1", [Guest.Invited(name="Ada")], expected=ANY)
        else:
            async with store.engine.begin() as connection:
                await store.append("guest-1", [Guest.Invited(name="Ada")], expected=ANY, connection=connection)
        assert [recorded.data["name"] async for recorded in store.read_all()] == ["Ada"]
        assert list((await store.erase("1")).streams) == ["guest-1"]
        assert [recorded.data["name"] async for recorded in store.read_all()] == ["(erased)"]
        turning.cancel()
    assert keys.blocked == []
