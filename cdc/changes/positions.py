"""Where a change stands in its source, as numbers that order the changes of one key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from cdc.changes import rules

_BINLOG_FILE: Final = re.compile(r".*\.(\d+)")
_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
_LIMIT: Final = 1 << 63


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """The place of a change among the changes of its key: the greater one is newer.

    Attributes:
        epoch: Counts the source's lives: another system identifier, timeline or GTID set begins the next, with a new
            initial snapshot.
        streamed: False for rows of snapshots, which are older than every streamed change of their epoch.
        position: PostgreSQL's LSN of the write, or the place in MySQL's binary log. A transaction that was open while
            the slot was created may have an LSN below the snapshot's.
        offset: The record's offset.

    Examples:
        >>> snapshot = SourcePosition(epoch=0, streamed=False, position=900, offset=4)
        >>> SourcePosition(epoch=0, streamed=True, position=700, offset=3) > snapshot
        True
    """

    epoch: int
    streamed: bool
    position: int
    offset: int


def position_of(body: Mapping[str, Any], *, epoch: int, offset: int) -> SourcePosition | None:
    """Return the position that a change event has in itself, None where its source is of no known kind.

    ``epoch`` is that of events that name none. ValueError for one that is no number.
    """
    source = body.get("source")
    if not isinstance(source, Mapping):
        return None
    streamed = is_streamed(source)
    place = _place(source)
    if place is None and not streamed:
        place = _seen_by_snapshot(source)
    said = body.get(rules.FIELD_EPOCH)
    life = epoch if said is None else whole_number(said)
    return None if place is None else SourcePosition(life, streamed, place, offset)


def whole_number(value: Any) -> int:
    """Return a number of 64 bits, also from text; ValueError for anything else, a boolean or a fraction too."""
    number = int(value) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else value
    if not is_number(number):
        raise ValueError(f"{str(value)[:60]!r} is no whole number")
    return number


def is_number(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number of 64 bits; a boolean is none."""
    return type(value) is int and -_LIMIT <= value < _LIMIT


def is_streamed(source: Mapping[str, Any]) -> bool:
    """Whether a change event's ``source`` is that of a streamed change, and not of a row that a snapshot read."""
    return source.get("snapshot", rules.STREAMED) in (rules.STREAMED, None, False)


def _seen_by_snapshot(source: Mapping[str, Any]) -> int | None:
    """How far the stream had come when an incremental snapshot read a row of PostgreSQL: the row has no LSN itself."""
    try:
        _, seen = json.loads(source["sequence"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
    return 0 if seen is None else whole_number(seen)


def _place(source: Mapping[str, Any]) -> int | None:
    lsn = source.get("lsn")
    if is_number(lsn):
        return lsn
    file, byte = source.get("file"), source.get("pos")
    if isinstance(file, str) and is_number(byte) and (match := _BINLOG_FILE.fullmatch(file)):
        return (int(match[1]) << rules.BINLOG_BYTES) + byte
    return None
