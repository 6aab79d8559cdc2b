"""Crates that are filled, a store of them, and the checker of what a relay made of it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable

from sqlalchemy import select

from eventstore import ANY, Aggregate, SqlEventStore, StreamAppend, event
from eventstore.topics import TopicRecord


class Crate(Aggregate):
    fillings: int = 0
    grams: int = 0

    @event
    class Filled:
        grams: int

    def on_filled(self, e: Filled) -> None:
        self.fillings += 1
        self.grams += e.grams


def crate_store(url: str, *, partitions: int = 3, topic: str | None = None) -> SqlEventStore:
    """A store whose crates go to a topic that nobody else has."""
    store = SqlEventStore(url)
    store.create_tables()
    store.declare_category("crate", partitions=partitions, topic=topic or f"crate.{uuid.uuid4().hex[:10]}")
    store.register(Crate)
    return store


def topic_of(store: SqlEventStore, category: str = "crate") -> str:
    """The topic of a category."""
    return next(found.topic for found in store.categories() if found.name == category)


def fill(store: SqlEventStore, *crates: object, times: int = 1) -> None:
    """Append so many events to each crate, in one transaction."""
    events = [Crate.Filled(grams=grams) for grams in range(times)]
    store.append_batch([StreamAppend(f"crate-{crate}", events, ANY) for crate in crates])


def faults(store: SqlEventStore, records: Iterable[TopicRecord], *, order: bool = True) -> dict[str, list[str]]:
    """What the records of a topic say otherwise than the store: keys by fault; nothing where all is well.

    Records without a value are passed over. What they take back is foreign as long as it is there.

    ``order``: each partition's records are compared with the store's order too, not only those of each stream.
    """
    columns = store.tables.events.c
    placed = [columns.message_key, columns.partition, columns.stream, columns.version, columns.payload]
    with store.engine.connect() as connection:
        query = select(*placed).where(columns.payload.is_not(None)).order_by(columns.order_xid, columns.position)
        rows = connection.execute(query).all()
    found = [((r.key or b"").decode(), r.partition, r.value) for r in records if r.value is not None]
    counted = Counter(key for key, _, _ in found)
    stored = {row.message_key: row for row in rows}
    seen = {
        "missing": [key for key in stored if key not in counted],
        "repeated": [key for key, times in counted.items() if times > 1],
        "foreign": [key for key in counted if key not in stored],
        "altered": [key for key, part, value in found if key in stored
                    and (part, value) != (stored[key].partition, stored[key].payload)],
        "disordered": _disordered(found) or (_displaced(found, stored) if order else []),
    }  # fmt: skip
    return {fault: keys for fault, keys in seen.items() if keys}


def _disordered(found: list[tuple[str, int, bytes]]) -> list[str]:
    """The keys that come at another place of their stream than their version says."""
    reached: dict[str, int] = {}
    wrong = []
    for key, _, _ in found:
        stream, _, version = key.rpartition("@")
        if int(version) != reached.get(stream, -1) + 1:
            wrong.append(key)
        reached[stream] = int(version)
    return wrong


def _displaced(found: list[tuple[str, int, bytes]], stored: dict[str, object]) -> list[str]:
    """The keys that come at another place of their partition than in the store's order."""
    places = {key: place for place, key in enumerate(stored)}
    reached: dict[int, int] = {}
    wrong = []
    for key, partition, _ in found:
        if places.get(key, 0) < reached.get(partition, 0):
            wrong.append(key)
        reached[partition] = max(reached.get(partition, 0), places.get(key, 0))
    return wrong
