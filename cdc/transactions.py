"""Transactions of a source, as Debezium tells of them, and the ends of a batch that holds none by half.

With `PostgresSource(transactions=True)` the topic `{prefix}.transaction` gets a BEGIN and an END for each transaction,
and every streamed change event says where it stands: `source.sequence` begins with the LSN of the last commit before
it. An END carries the LSN of its own commit. So a change belongs to a transaction that has ended by then exactly if
its first LSN is below the END's; and since a connector is one thread that sends in the order of the commits, that
splits each partition in two (docs/decisions/0034).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from cdc.errors import UndecodableChange

Partition = tuple[str, int]
# How many offsets a look into a partition spans: what one fetch brings in any case.
WINDOW: Final = 64


class TransactionStatus(StrEnum):
    """The two marks of a transaction."""

    BEGIN = "BEGIN"
    END = "END"


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """One record of the transaction topic.

    `lsn` is where the source's log stood: at an END, the commit. `events` counts the change events by `schema.table`,
    before any transform, and is empty at a BEGIN.
    """

    status: TransactionStatus
    transaction: str
    lsn: int
    events: Mapping[str, int] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        """Whether it is an END."""
        return self.status is TransactionStatus.END


def decode_marker(value: bytes | None, *, place: str) -> TransactionMarker:
    """Decode one record's value, JSON with or without a schema; UndecodableChange."""
    body = _body(value, place, what="mark of a PostgreSQL source's transaction")
    try:
        transaction, _, lsn = body["id"].partition(":")
        counts = {one["data_collection"]: int(one["event_count"]) for one in body["data_collections"] or ()}
        return TransactionMarker(TransactionStatus(body["status"]), transaction, int(lsn), counts)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _undecodable("mark of a PostgreSQL source's transaction", place) from error


class LogPlace(NamedTuple):
    """Where a change event stands among the commits of its source; the greater one was sent later.

    `after` is the LSN of the last commit before it, 0 for none: the initial snapshot's. Rows of a snapshot are in no
    transaction, and come before the changes of the transaction that follows.
    """

    after: int
    in_transaction: bool


def decode_place(value: bytes, *, place: str) -> LogPlace:
    """Read where a change event stands, JSON with or without a schema; UndecodableChange."""
    body = _body(value, place, what="change event of a PostgreSQL source")
    try:
        before = json.loads(body["source"]["sequence"])[0]
        # Whatever is streamed is of a transaction; only rows of snapshots are of none.
        streamed = body["source"].get("snapshot", "false") in ("false", None, False)
        return LogPlace(int(before or 0), streamed)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _undecodable("change event of a PostgreSQL source", place) from error


def beyond(last: int) -> LogPlace:
    """The least place of a change that no transaction up to the commit `last` holds; 0 stands before all commits."""
    return LogPlace(last, in_transaction=True)


class Probe(Protocol):
    """Looks into partitions of a log whose change events stand in the order of their places."""

    def first(self, ranges: Mapping[Partition, tuple[int, int]]) -> Mapping[Partition, tuple[int, LogPlace] | None]:
        """The offset and place of the first change event in each range; None where there is none."""


def whole_ends(
    probe: Probe, starts: Mapping[Partition, int], ends: Mapping[Partition, int], *, last: int
) -> dict[Partition, int]:
    """The greatest ends, at most those given, before which no change lies beyond the commit `last`.

    Looks at the tail of each partition first, since that is where the end mostly is, and then halves what is left: all
    partitions at once, some 17 looks for 100,000 offsets.
    """
    search = {
        p: _Search(low=starts[p], high=end, end=end, middle=max(starts[p], end - WINDOW)) for p, end in ends.items()
    }
    limit = beyond(last)
    while asked := {p: (one.middle, one.high) for p, one in search.items() if one.low < one.high}:
        found = probe.first(asked)
        for partition in asked:
            search[partition].narrow(found[partition], is_beyond=lambda place: place >= limit)
    return {partition: one.end for partition, one in search.items()}


@dataclass(slots=True)
class _Search:
    """One partition: everything below `low` belongs, nothing from `high` up to `end` is a change that belongs."""

    low: int
    high: int
    end: int
    middle: int

    def narrow(self, found: tuple[int, LogPlace] | None, *, is_beyond: Callable[[LogPlace], bool]) -> None:
        if found is None:
            self.high = self.middle
        elif is_beyond(found[1]):
            self.high, self.end = self.middle, found[0]
        else:
            self.low = found[0] + 1
        self.middle = (self.low + self.high) // 2


def _body(value: bytes | None, place: str, *, what: str) -> Mapping[str, Any]:
    try:
        body = json.loads(value or b"null")
    except (ValueError, RecursionError) as error:
        raise _undecodable(what, place) from error
    if not isinstance(body, dict):
        raise _undecodable(what, place)
    unwrapped = body["payload"] if body.keys() == {"schema", "payload"} else body
    return unwrapped if isinstance(unwrapped, dict) else {}


def _undecodable(what: str, place: str) -> UndecodableChange:
    return UndecodableChange(
        f"the record is no {what} in JSON",
        remedy="let a PostgresSource(transactions=True) write the topics, with a JSON converter",
        place=place,
    )
