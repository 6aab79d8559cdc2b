"""An asyncio store as a synchronous one, for the suite: calls, of many threads at once, run on one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eventstore import AsyncSqlEventStore


class OnALoop:
    """Calls what the store has, and waits for it."""

    def __init__(self, store: AsyncSqlEventStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop

    def __getattr__(self, name):
        method = getattr(self._store, name)
        read = name.startswith("read_")

        def called(*args, **kwargs):
            # An iterator is made at once, so that what is wrong with its bounds is said at once.
            work = collected(method(*args, **kwargs)) if read else method(*args, **kwargs)
            found = asyncio.run_coroutine_threadsafe(work, self._loop).result()
            return iter(found) if read else found

        return called


async def collected(events):
    return [event async for event in events]


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop")
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@contextmanager
def on_a_loop(url: str, **options) -> Iterator[OnALoop]:
    """A store whose tables are there."""
    with running_loop() as loop:
        store = OnALoop(AsyncSqlEventStore(url, **options), loop)
        store.create_tables()
        yield store
        store.close()
