"""How fresh views are: when the newest record that they have applied was committed at its source.

Lag says what waits in the topics. A topic may lack what its source has: then lag is 0, and only the time of the newest
applied commit tells that the views are old.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cdc.changes.change_records import commit_time
from cdc.errors import CdcError
from projections.declaring.group import ERASURES
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import OpenLog

if TYPE_CHECKING:
    from cdc.changes.change_records import Lookup

# Tombstones and markers of transactions say no time: so many offsets of each partition are looked at, one after the
# other. Behind them the former time stands. Few at first, since a record may be 16 MB.
_WINDOWS: Final = (2, 8, 32)


def applied_commits(log: OpenLog, progress: Offsets, *, schemas: Lookup | None = None) -> dict[str, datetime]:
    """Return, by topic, when the newest applied record was committed at its source.

    Of an event that is its time, of a change event the commit of its transaction. A topic whose last applied records do
    not say is left out.

    Args:
        log: The topics.
        progress: How far a run has come.
        schemas: Finds the schema of an id, for changelogs in Avro.

    Raises:
        OffsetsLost: The records are no longer in the topic.
    """
    commits: dict[str, datetime] = {}
    topics = [topic for topic in progress if topic != ERASURES]
    for window in _WINDOWS:
        if missing := [topic for topic in topics if topic not in commits]:
            commits |= _newest(log, _last(log, {topic: progress[topic] for topic in missing}, window), schemas)
    return commits


def _newest(log: OpenLog, offsets: OffsetRange, schemas: Lookup | None) -> dict[str, datetime]:
    commits: dict[str, datetime] = {}
    for row in log.fetch(offsets, headed=True).to_pylist():
        moment = _moment(row, schemas)
        if moment is not None:
            commits[row["topic"]] = max(moment, commits.get(row["topic"], moment))
    return commits


def _last(log: OpenLog, ends: Offsets, window: int) -> OffsetRange:
    begins = log.beginning_offsets(list(ends))
    start = {
        topic: {p: max(begins[topic].get(p, 0), end - window) for p, end in parts.items()}
        for topic, parts in ends.items()
    }
    return OffsetRange(start, ends)


def _moment(row: Mapping[str, Any], schemas: Lookup | None) -> datetime | None:
    if row["ce_time"] is not None:
        return datetime.fromisoformat(row["ce_time"])
    if row["value"] is None:
        return None
    try:
        return commit_time(row["value"], f"{row['topic']}[{row['partition']}]@{row['offset']}", schemas=schemas)
    except CdcError:
        return None  # a record that was set aside, or one in Avro without a registry
