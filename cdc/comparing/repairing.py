"""Rows that differ, read again by signal and put right in their changelog.

The connector reads the rows by an incremental snapshot, in its own encoding. Where the state has a streamed row, the
row that was read comes once more, behind that row; a row that the source does not have is deleted behind it
(`corrections`). Nothing is written into the user's tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from cdc.comparing.corrections import content, deletion_at, epoch_of, is_reread, needs_place, row_at
from cdc.comparing.report import StateTable
from cdc.comparing.rows import Key, SeenRow, ordered
from cdc.comparing.walk import Settled
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.source.signals import Signals
    from eventstore.topics import TopicRecord

# What a signal carries as keys; beyond that it names ranges of keys, which are read whole.
_MOST_KEYS: Final = 500
_MOST_RANGES: Final = 100
# What the connector has said it read becomes visible in each partition by itself.
_VISIBLE_SECONDS: Final = 30.0
_AVRO: Final = "records in Avro cannot be corrected: rebuild the group from a new snapshot"

Condition = Callable[[Sequence[tuple[Key, Key]]], str]


@dataclass(frozen=True)
class Repair:
    """The repair of one table; ``condition`` writes ranges of keys, or single ones, as SQL of the source."""

    signals: Signals
    table: str
    state: StateTable
    condition: Condition

    def run(self, settled: Settled, *, before: Mapping[int, int]) -> str | None:
        """Repair what differs, and return why some of it cannot be; ``before`` is where the topic ended."""
        kinds = [self.state.forms[name].kind for name in self.state.key]
        again = sorted([*settled.missing, *settled.differing], key=lambda key: ordered(key, kinds))
        if again:
            # Debezium cannot read chunks by a timestamp: it compares the column with text.
            chunked = not {"moment", "local moment"} & {*kinds}
            ask = self.signals.snapshot if chunked else self.signals.blocking_snapshot
            ask([self.table], where={self.table: self.condition(_ranges(again))}).wait()
        placed = {key: settled.stored[key] for key in again if needs_place(settled.stored.get(key))}
        if not (placed or settled.extra):
            return None
        if self.state.encoding == "avro":
            return _AVRO
        extra = {key: settled.stored[key] for key in settled.extra}
        records = chain(self._rows(placed, before) if placed else (), self._deletions(extra) if extra else ())
        RecordProducer(self.signals.settings).send(records)
        return None

    def _rows(self, placed: Mapping[Key, SeenRow], before: Mapping[int, int]) -> Iterator[OutgoingRecord]:
        """The rows that the connector has read again, each once; those deleted meanwhile do not come."""
        records: dict[Key, OutgoingRecord] = {}
        start, until = dict(before), time.monotonic() + _VISIBLE_SECONDS
        while len(records) < len(placed):
            for record in read_range(self.signals.settings, self.state.topic, start=start):
                start[record.partition] = record.offset + 1
                self._take(record, placed, records)
            if time.monotonic() > until:
                break
            time.sleep(0.2)
        return iter(records.values())

    def _take(self, record: TopicRecord, placed: Mapping[Key, SeenRow], records: dict[Key, OutgoingRecord]) -> None:
        if record.key is None or record.value is None:
            return
        key = self.state.decode_key(record.key, record.place)
        stored, (_, body) = placed.get(key), content(record.value)
        if stored is None:
            return
        if not is_reread(body):
            records.pop(key, None)  # a change of the source, which is newer than what was read
        elif stored.position is not None and epoch_of(body) == stored.position[0]:
            records[key] = row_at(record, stored, now=time.time_ns())

    def _deletions(self, extra: Mapping[Key, SeenRow]) -> Iterator[OutgoingRecord]:
        """Deletions of rows that the source lacks, written like the last change event of each key."""
        last: dict[Key, TopicRecord] = {}
        for record in _changes(read_range(self.signals.settings, self.state.topic)):
            if (key := self.state.decode_key(record.key or b"", record.place)) in extra:
                last[key] = record
        return (deletion_at(record, extra[key], now=time.time_ns()) for key, record in last.items())


def _changes(records: Iterable[TopicRecord]) -> Iterator[TopicRecord]:
    return (record for record in records if record.key is not None and record.value is not None)


def _ranges(keys: Sequence[Key]) -> list[tuple[Key, Key]]:
    """Single keys where they are few, else ranges that hold them all."""
    if len(keys) <= _MOST_KEYS:
        return [(key, key) for key in keys]
    size, rest = -(-len(keys) // _MOST_RANGES), iter(keys)
    parts = iter(lambda: list(islice(rest, size)), [])
    return [(part[0], part[-1]) for part in parts]
