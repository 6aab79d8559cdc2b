"""Rows that differ, read again by signal and put right in their changelog.

The connector reads the rows by an incremental snapshot, in its own encoding. Where the state has a streamed row, the
row that was read comes once more, behind that row; a row that the source does not have is deleted behind it
(`corrections`). Nothing is written into the user's tables.

Change events that put a row right at the place where the state went wrong.

A row that a snapshot reads again loses to every streamed change (docs/decisions/0008), and no snapshot deletes a row.
So a correction stands one byte behind the row that it corrects: it wins over that row, and loses to every change that
the source has made since, none of which is in the same 24 bytes. The row itself is the connector's: its record, with
another position.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from cdc.changes import rules
from cdc.changes.change_records import is_streamed
from cdc.comparing.report import Key, SeenRow, StateTable, ordered
from cdc.comparing.walk import Settled
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.source.signals import Signals

# Which process wrote the record; no reader asks.
HEADER: Final = ("factfold_correction", b"cdc compare")
# How far a reader moves the position of a snapshot's row down: half of what 64 bits hold.
_BELOW_STREAMED: Final = 1 << 62
_SNAPSHOT: Final = "true"
_TIMES: Final = {"ts_ms": 1_000_000, "ts_us": 1_000, "ts_ns": 1}


def is_reread(body: Mapping[str, Any]) -> bool:
    """Whether a change event is a row that a snapshot read."""
    return body.get(rules.FIELD_OP) == rules.OP_SNAPSHOT and not is_streamed(body["source"])


def content(value: bytes) -> tuple[Any, dict[str, Any]]:
    """The whole JSON of a record and the change event in it, with its schema around it or without."""
    whole = json.loads(value)
    return whole, whole["payload"] if whole.keys() == {"schema", "payload"} else whole


def row_at(record: TopicRecord, stored: SeenRow, *, now: int) -> OutgoingRecord:
    """A row that was read again, behind the stored one; ``now`` is in nanoseconds since 1970."""
    return _placed(record, stored, {}, now)


def deletion_at(record: TopicRecord, stored: SeenRow, *, now: int) -> OutgoingRecord:
    """The deletion of a stored row; ``record`` is any change event of its key, ``now`` in nanoseconds since 1970.

    No tombstone follows: it would have no position of its own, and could delete a row that came back meanwhile.
    """
    return _placed(record, stored, {rules.FIELD_OP: rules.OP_DELETE, rules.FIELD_AFTER: None}, now)


def needs_place(stored: SeenRow | None) -> bool:
    """Whether a stored row is a streamed change's, which a snapshot's row does not replace."""
    return stored is not None and stored.position is not None and stored.position[1] >= 0


def epoch_of(body: Mapping[str, Any]) -> int:
    """The life of the source that a change event is of."""
    return int(body.get(rules.FIELD_EPOCH) or 0)


def _placed(record: TopicRecord, stored: SeenRow, changed: Mapping[str, Any], now: int) -> OutgoingRecord:
    whole, body = content(record.value or b"")
    epoch, place, _ = stored.position or (0, 0, 0)
    streamed = place >= 0
    lsn = 1 + (place if streamed else place + _BELOW_STREAMED)
    times = {name: now // per for name, per in _TIMES.items() if name in body["source"]}
    body |= {rules.FIELD_BEFORE: None, **changed}
    body["source"] |= {"lsn": lsn, "snapshot": rules.STREAMED if streamed else _SNAPSHOT, **times}
    if epoch or rules.FIELD_EPOCH in body:
        body[rules.FIELD_EPOCH] = str(epoch)
    return OutgoingRecord(
        topic=record.topic,
        key=record.key,
        value=json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode(),
        headers=(HEADER,),
        partition=record.partition,
    )


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
