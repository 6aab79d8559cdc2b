"""Rows written, changed and deleted by chance, and an account of every change event they must leave.

The account is kept by the writer, key by key, and knows nothing of Debezium: the checker holds the topic against it.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from eventstore.topics import TopicRecord

PARCELS = sa.Table(
    "parcels",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("weight", sa.BigInteger, nullable=False),
    schema="public",
)
# Rows of one transaction: as many come, of those that are there two fifths change and one tenth goes, and as many of
# those that went come back, under the next version.
STEP = 50
Change = tuple[int, str, int | None]  # id, operation, version; deletes and tombstones have none


@dataclass
class ParcelLoad:
    """Writes to the table in a thread; ``expected`` counts the change events of all that was committed."""

    engine: sa.Engine
    seed: int
    expected: Counter[Change] = field(default_factory=Counter)
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._next = 0
        self._gone: dict[int, int] = {}  # the last version of each
        self._thread = threading.Thread()

    def start(self, count: int) -> None:
        """Begin to write so many new rows, with changes and deletes among them."""
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(count,))
        self._thread.start()

    def finish(self) -> None:
        """Wait until they are written."""
        self._thread.join(240)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _work(self, count: int) -> None:
        try:
            for _ in range(count // STEP):
                self._step()
        except BaseException as error:
            self._failure = error

    def _step(self) -> None:
        ids = sorted(self.rows)
        changed = self._chance.sample(ids, min(len(ids), STEP * 2 // 5))
        gone = self._chance.sample(changed, len(changed) // 4)
        back = self._chance.sample(sorted(self._gone), min(len(self._gone), STEP // 10))
        versions = {key: self._gone[key] + 1 for key in back} | {self._next + n: 1 for n in range(STEP)}
        new = {key: (version, self._chance.randrange(1 << 40)) for key, version in versions.items()}
        after = {key: (self.rows[key][0] + 1, self._chance.randrange(1 << 40)) for key in changed}
        with self.engine.begin() as connection:
            self._write(connection, new, after, gone)
        self._next += STEP
        self._account(new, after, gone)

    def _write(
        self, connection: sa.Connection, new: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]],
        gone: Iterable[int],
    ) -> None:  # fmt: skip
        connection.execute(PARCELS.insert(), [{"id": k, "version": v, "weight": w} for k, (v, w) in new.items()])
        chosen = PARCELS.update().where(PARCELS.c.id == sa.bindparam("k"))
        changes = [{"k": k, "v": v, "w": w} for k, (v, w) in after.items()]
        if changes:
            connection.execute(chosen.values(version=sa.bindparam("v"), weight=sa.bindparam("w")), changes)
            connection.execute(PARCELS.delete().where(PARCELS.c.id.in_(list(gone))))

    def _account(
        self, new: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]], gone: Iterable[int]
    ) -> None:
        self.rows |= {**new, **after}
        for key in new.keys() & self._gone.keys():
            del self._gone[key]
        self.expected.update((key, "c", version) for key, (version, _) in new.items())
        self.expected.update((key, "u", version) for key, (version, _) in after.items())
        for key in gone:
            self.expected.update([(key, "d", None), (key, "tombstone", None)])
            self._gone[key], _ = self.rows.pop(key)


def changes_in(records: Iterable[TopicRecord]) -> Counter[Change]:
    """The change events of a topic, counted."""
    return Counter(map(_change, records))


def _change(record: TopicRecord) -> Change:
    key = json.loads(record.key or b"")["id"]
    if record.value is None:
        return key, "tombstone", None
    event = json.loads(record.value)
    return key, event["op"], None if event["after"] is None else event["after"]["version"]


def newest_rows(records: Iterable[TopicRecord]) -> dict[int, tuple[int, int]]:
    """What the topic says of each key by its greatest LSN, whatever the order of arrival."""
    newest: dict[int, tuple[int, dict[str, int] | None]] = {}
    for record in records:
        if record.value is not None:
            key, event = json.loads(record.key or b"")["id"], json.loads(record.value)
            newest[key] = max(newest.get(key, (-1, None)), (event["source"]["lsn"], event["after"]), key=lambda p: p[0])
    return {key: (row["version"], row["weight"]) for key, (_, row) in newest.items() if row is not None}


def lost_and_repeated(expected: Counter[Change], found: Counter[Change]) -> tuple[int, int]:
    """How many change events are not there, and how many are there too often."""
    return (expected - found).total(), (found - expected).total()
