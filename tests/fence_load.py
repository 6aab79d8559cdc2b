"""Writers that delay and roll back; readers that follow them, behind the fence and as everybody writes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

from eventstore import ANY, Aggregate, Position, SqlEventStore, event


class Meter(Aggregate):
    @event
    class Read:
        number: int


class FencedReader:
    """Follows the store by `read_all`, keeping the position of the last event as its checkpoint."""

    def __init__(self, store: SqlEventStore) -> None:
        self._store = store
        self.checkpoint: Position | None = None
        self.seen: list[tuple[str, int]] = []

    def poll(self) -> None:
        for recorded in self._store.read_all(after=self.checkpoint):
            self.seen.append((recorded.stream, recorded.version))
            self.checkpoint = recorded.position


def under_load(
    store: SqlEventStore, poll: Callable[[], object], *, writers: int, appends: int, seed: int
) -> list[tuple[str, int]]:
    """Poll while writers delay 20 % of their commits and roll 5 % back; return what was committed."""
    running = threading.Event()
    running.set()
    poller = threading.Thread(target=lambda: [poll() for _ in iter(running.is_set, False)])
    poller.start()
    try:
        with ThreadPoolExecutor(writers) as pool:
            written = list(pool.map(lambda n: _write(store, n, Random(seed + n), appends), range(writers)))
    finally:
        running.clear()
        poller.join()
    return [place for places in written for place in places]


def _write(store: SqlEventStore, writer: int, chance: Random, appends: int) -> list[tuple[str, int]]:
    pause, written = threading.Event(), []
    for number in range(appends):
        with store.engine.connect() as connection:
            transaction = connection.begin()
            stream = f"meter-{writer}"
            result = store.append(stream, [Meter.Read(number=number)], expected=ANY, connection=connection)
            if chance.random() < 0.2:
                pause.wait(chance.uniform(0.005, 0.05))
            if chance.random() < 0.05:
                transaction.rollback()
                continue
            transaction.commit()
            written.append((stream, result.version))
    return written


def disordered(seen: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the events seen other than right after their stream's previous version."""
    next_version: dict[str, int] = {}
    wrong = []
    for stream, version in seen:
        if version != next_version.get(stream, 0):
            wrong.append((stream, version))
        next_version[stream] = version + 1
    return wrong
