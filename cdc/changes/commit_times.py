"""When a record's change was committed in its source: what makes a view's freshness more than the broker's time."""

from __future__ import annotations

from datetime import UTC, datetime

from cdc.changes.change_records import Lookup, RecordReader


def commit_time(value: bytes, place: str, *, schemas: Lookup | None = None) -> datetime | None:
    """Return when a change event's transaction was committed by its source's clock, None if the record does not say.

    A row of a snapshot has the snapshot's time.

    Args:
        value: The value of a changelog topic's record.
        place: The record's address for messages.
        schemas: Finds the schema of an id, for records in Avro.

    Raises:
        UndecodableChange: The value is no change event.
    """
    body, _ = RecordReader("value", schemas).read(value, place)
    source = body.get("source")
    moment = source.get("ts_ms") if isinstance(source, dict) else None
    return datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else None
