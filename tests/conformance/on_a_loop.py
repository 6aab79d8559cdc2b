"""An asyncio store as a synchronous one, for the suite: calls, of many threads at once, run on one event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

from eventstore import AsyncSqlEventStore


class OnALoop:
    """Calls the methods of the store, and waits for their results."""

    def __init__(self, store, loop):
        self._store = store
        self._loop = loop

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def called(*args, **kwargs):
            work = method(*args, **kwargs)
            if hasattr(work, "__aiter__"):
                return iter(self._wait_for(collected(work)))
            return self._wait_for(work)

        return called

    def _wait_for(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def collected(found):
    return [one async for one in found]


@contextmanager
def running_loop():
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop")
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@contextmanager
def on_a_loop(url, **options):
    """A store whose tables are there."""
    with running_loop() as loop:
        store = OnALoop(AsyncSqlEventStore(url, **options), loop)
        store.create_tables()
        yield store
        store.close()
