"""Transactions of a source, as Debezium reports them, and the ends of a batch that holds none by half.

With `PostgresSource(transactions=True)` the topic `{prefix}.transaction` gets a BEGIN and an END for each transaction,
and every streamed change event says where it stands: `source.sequence` begins with the LSN of the last commit before
it. An END carries the LSN of its own commit. So a change belongs to a transaction that has ended by then exactly if
its first LSN is below the END's; and since a connector is one thread that sends in the order of the commits, that
splits each partition in two. LSNs count within one life of the source: its epoch stands before them
(docs/decisions/0034).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from cdc.changes import rules
from cdc.changes.change_records import Lookup, RecordReader
from cdc.changes.positions import is_streamed
from cdc.errors import UndecodableChange

Partition = tuple[str, int]
# How many offsets a look into a partition spans: what one fetch brings in any case.
WINDOW: Final = 64
_MARK: Final = "mark of a PostgreSQL source's transaction"
_CHANGE: Final = "change event of a PostgreSQL source"


class TransactionStatus(StrEnum):
    """The two marks of a transaction."""

    BEGIN = "BEGIN"
    END = "END"


class Commit(NamedTuple):
    """A commit of the source, or the beginning of everything; the greater one was sent later."""

    epoch: int = 0
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """One record of the transaction topic.

    Attributes:
        status: BEGIN or END.
        transaction: The transaction's id.
        lsn: The place in the source's log, at an END that of the commit.
        events: The number of change events by `schema.table`, before transforms. Empty at a BEGIN.
        epoch: The source's life.

    Examples:
        >>> marker = decode_marker(record.value, place=record.place)
        >>> marker.ends, marker.events
        (True, {'public.orders': 1, 'public.customers': 2})
    """

    status: TransactionStatus
    transaction: str
    lsn: int
    events: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0

    @property
    def ends(self) -> bool:
        """Whether it is an END."""
        return self.status is TransactionStatus.END

    @property
    def commit(self) -> Commit:
        """The commit that an END marks."""
        return Commit(self.epoch, self.lsn)


def decode_marker(value: bytes | None, *, place: str, schemas: Lookup | None = None) -> TransactionMarker:
    """Decode a record's value: JSON with or without a schema, or Avro by `schemas`. Raises UndecodableChange.

    Examples:
        >>> decode_marker(record.value, place=record.place).events
        {'public.orders': 1, 'public.customers': 2}
    """
    return read_marker(RecordReader("value", schemas), value, place)


def read_marker(reader: RecordReader, value: bytes | None, place: str) -> TransactionMarker:
    """Decode one record's value by a reader that knows the records before; UndecodableChange."""
    body = _body(reader, value, place, what=_MARK)
    try:
        transaction, _, lsn = body["id"].partition(":")
        counts = {one["data_collection"]: int(one["event_count"]) for one in body["data_collections"] or ()}
        return TransactionMarker(TransactionStatus(body["status"]), transaction, int(lsn), counts, _epoch(body))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _undecodable(_MARK, place) from error


class LogPlace(NamedTuple):
    """Where a change event stands among the commits of its source; the greater one was sent later.

    `after` is the LSN of the last commit before it. Changes of the first transaction after an initial snapshot
    name none: there it is the change's own LSN, and for a row of that snapshot the LSN that the snapshot saw. Rows of a
    snapshot are in no transaction.
    """

    epoch: int
    after: int
    in_transaction: bool

    def tells(self, last: Commit) -> bool:
        """Whether it says if a batch up to the commit `last` may go beyond it.

        A row of a snapshot that saw an earlier commit says yes; of a later one, it says nothing of the changes before.
        """
        return self.in_transaction or (self.epoch, self.after) < last

    def is_beyond(self, last: Commit) -> bool:
        """Whether no transaction up to the commit `last` holds it."""
        return (self.epoch, self.after) >= last


def read_place(reader: RecordReader, value: bytes | None, place: str) -> LogPlace:
    """Read where a change event stands by a reader that knows the records before; UndecodableChange."""
    body = _body(reader, value, place, what=_CHANGE)
    try:
        source = body["source"]
        before, own = json.loads(source["sequence"])
        # Whatever is streamed is of a transaction; only rows of snapshots are of none.
        return LogPlace(_epoch(body), int(before or own or 0), is_streamed(source))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _undecodable(_CHANGE, place) from error


Tells = Callable[[LogPlace], bool]


class Probe(Protocol):
    """Looks into partitions of a log whose change events stand in the order of their places."""

    def first(
        self, ranges: Mapping[Partition, tuple[int, int]], tells: Tells
    ) -> Mapping[Partition, tuple[int, LogPlace] | None]:
        """The offset and place of the first change event in each range that tells something; None without one."""


def whole_ends(
    probe: Probe, starts: Mapping[Partition, int], ends: Mapping[Partition, int], *, last: Commit
) -> dict[Partition, int]:
    """The greatest ends, at most those given, before which no change lies beyond the commit `last`.

    Looks at the tail of each partition first, since that is where the end mostly is, and then halves what is left: all
    partitions at once, some 17 looks for 100,000 offsets.
    """
    search = {
        p: _Search(low=starts[p], high=end, end=end, middle=max(starts[p], end - WINDOW)) for p, end in ends.items()
    }
    while asked := {p: (one.middle, one.high) for p, one in search.items() if one.low < one.high}:
        changes = probe.first(asked, lambda place: place.tells(last))
        for partition in asked:
            search[partition].narrow(changes[partition], last)
    return {partition: one.end for partition, one in search.items()}


@dataclass(slots=True)
class _Search:
    """One partition: everything below `low` belongs, nothing from `high` up to `end` is a change that belongs."""

    low: int
    high: int
    end: int
    middle: int

    def narrow(self, change: tuple[int, LogPlace] | None, last: Commit) -> None:
        if change is None:
            self.high = self.middle
        elif change[1].is_beyond(last):
            self.high, self.end = self.middle, change[0]
        else:
            self.low = change[0] + 1
        self.middle = (self.low + self.high) // 2


def _body(reader: RecordReader, value: bytes | None, place: str, *, what: str) -> Mapping[str, Any]:
    if value is None:
        raise _undecodable(what, place)
    return reader.read(value, place)[0]


def _epoch(body: Mapping[str, Any]) -> int:
    return int(body.get(rules.FIELD_EPOCH) or 0)


def _undecodable(what: str, place: str) -> UndecodableChange:
    return UndecodableChange(
        f"the record is no {what}",
        remedy="let a PostgresSource(transactions=True) write the topics",
        place=place,
    )
