"""Change events that put a row right at the place where the state went wrong.

A row that a snapshot reads again loses to every streamed change (docs/decisions/0008), and no snapshot deletes a row.
So a correction stands one byte behind the row that it corrects: it wins over that row, and loses to every change that
the source has made since, none of which is in the same 24 bytes. The row itself is the connector's: its record, with
another position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cdc.changes import rules
from cdc.changes.positions import is_streamed
from cdc.comparing.rows import SeenRow
from eventstore.kafka.producer import OutgoingRecord
from eventstore.topics import TopicRecord

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
