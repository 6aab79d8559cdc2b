"""Transactions of a source, as Debezium reports them, and the ends of a batch that holds none by half.

With `PostgresSource(transactions=True)` the topic `{prefix}.transaction` gets a BEGIN and an END for each transaction,
and every streamed change event says where it stands: `source.sequence` begins with the LSN of the last commit before
it. An END carries the LSN of its own commit. So a change belongs to a transaction that has ended by then exactly if
its first LSN is below the END's; and since a connector is one thread that sends in the order of the commits, that
splits each partition in two. LSNs count within one life of the source: its epoch stands before them
(docs/decisions/0034).

The changelog topics of one connector, read up to the end of a transaction of its source.

It needs exactly-once delivery: with it an END and the changes before it are committed in Kafka together or in that
order, on every partition. A reader may yet see the END first, because each partition learns of a commit by itself: so
an END counts once all that had been written to the changelogs when it was seen is committed (docs/decisions/0034).
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from cdc.changes import rules
from cdc.changes.change_records import Lookup, RecordReader, is_streamed
from cdc.errors import UndecodableChange
from eventstore.closing import Closing
from eventstore.errors import TopicMismatch
from eventstore.topics import by_partition, by_topic

if TYPE_CHECKING:
    from eventstore.settings import Settings

Partition = tuple[str, int]
# How many offsets a look into a partition spans: what one fetch brings in any case.
WINDOW: Final = 64
_MARK: Final = "mark of a PostgreSQL source's transaction"
_CHANGE: Final = "change event of a PostgreSQL source"


class Commit(NamedTuple):
    """A commit of the source, or the beginning of everything; the greater one was sent later."""

    epoch: int = 0
    lsn: int = 0


class End(NamedTuple):
    """The END of a transaction: its commit, and its change events by `schema.table`, counted before transforms."""

    commit: Commit
    events: Mapping[str, int]


def read_mark(reader: RecordReader, value: bytes | None, place: str) -> End | None:
    """Read one record of the transaction topic, None for a BEGIN; UndecodableChange."""
    body = _body(reader, value, place, what=_MARK)
    try:
        commit = Commit(_epoch(body), int(body["id"].partition(":")[2]))
        counts = {one["data_collection"]: int(one["event_count"]) for one in body["data_collections"] or ()}
        return {"BEGIN": None, "END": End(commit, counts)}[body["status"]]
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


Change = tuple[int, Callable[[], LogPlace]]
"""The offset of a change event, and what reads its place."""
Read = Callable[[Mapping[Partition, tuple[int, int]]], Iterator[tuple[Partition, Change]]]
"""Reads ranges of partitions whose change events stand in the order of their places."""


def whole_ends(
    read: Read, starts: Mapping[Partition, int], ends: Mapping[Partition, int], *, last: Commit
) -> dict[Partition, int]:
    """The greatest ends, at most those given, before which no change lies beyond the commit `last`.

    Looks at the tail of each partition first, since that is where the end mostly is, and then halves what is left: all
    partitions at once, some 12 looks for 100,000 offsets.
    """
    search = {p: _Search(starts[p], end, end, max(starts[p], end - WINDOW)) for p, end in ends.items()}
    while asked := {p: (one.middle, one.stop) for p, one in search.items() if one.low < one.high}:
        windows: dict[Partition, list[Change]] = {partition: [] for partition in asked}
        for partition, change in read(asked):
            windows[partition].append(change)
        for partition, changes in windows.items():
            search[partition].narrow(partition, changes, read, last)
    return {partition: one.end for partition, one in search.items()}


@dataclass(slots=True)
class _Search:
    """One partition: everything below `low` belongs, nothing from `high` up to `end` is a change that belongs."""

    low: int
    high: int
    end: int
    middle: int

    @property
    def stop(self) -> int:
        """Where the window that begins at the middle ends."""
        return min(self.high, self.middle + WINDOW)

    def narrow(self, partition: Partition, changes: Sequence[Change], read: Read, last: Commit) -> None:
        """Take the changes of the window in; where none tells anything, the first one behind it that does."""
        told, stop = self._told(reversed(changes), last), self.stop
        if told is None and stop < self.high:
            # However far: compaction leaves gaps of any length, and a snapshot rows.
            rest = (change for _, change in read({partition: (stop, self.high)}))
            told = self._told(islice((one for one in rest if one[1]().tells(last)), 1), last)
            stop = self.middle
        if not told:
            self.high = self.middle
        elif self.end <= stop or self.high <= stop:
            self.low = self.high
        self.middle = self.low if self.high - self.low <= WINDOW else (self.low + self.high) // 2

    def _told(self, changes: Iterable[Change], last: Commit) -> bool | None:
        """Whether one of these changes belongs, of which the last one is given first; None if none tells anything."""
        told = None
        for offset, place in changes:
            here = place()
            if here.tells(last):
                if not here.is_beyond(last):
                    self.low = offset + 1
                    return True
                told, self.end = False, offset
        return told


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


Offsets = Mapping[str, Mapping[int, int]]
# Between two looks for a commit that is on its way to all partitions.
_LOOK_SECONDS: Final = 0.01
_COMMIT_SECONDS: Final = 30.0
_COMPLAIN_SECONDS: Final = 30.0

log = structlog.get_logger()


class _Ended(NamedTuple):
    """A commit, and how many change events of the tables that are read it has."""

    commit: Commit
    events: int


class _Seen(NamedTuple):
    """ENDs read together, and how much had been written to the changelogs by then."""

    ends: Sequence[_Ended]
    written: Offsets


class SourceTransactions(Closing):
    """Ends batches over changelog topics of one connector at transactions of its source. Close it after use.

    Args:
        settings: The settings of Kafka.
        prefix: The connector's topic prefix.
        topics: The changelogs that are read. Changes of other tables in a transaction do not count.
        schemas: Finds the schemas of Avro records, such as `ConfluentRegistry.schema`.

    Examples:
        >>> start = {topic: dict.fromkeys(range(rows.partitions), 0) for topic in rows.topics}
        >>> with SourceTransactions(settings, rows.topic_prefix, rows.topics) as transactions:
        ...     ends = transactions.latest(start)
    """

    def __init__(
        self, settings: Settings, prefix: str, topics: Sequence[str], *, schemas: Lookup | None = None
    ) -> None:
        from eventstore.kafka.admin import OffsetReader  # needs the extra kafka
        from eventstore.kafka.consumer import RangeReader  # needs the extra kafka

        self.topics = tuple(topics)
        self.topic = f"{prefix}.transaction"
        self._tables = {topic.removeprefix(f"{prefix}.") for topic in topics}
        self._offsets, self._reader = OffsetReader(settings), RangeReader(settings)
        self._marks, self._changes = RecordReader("value", schemas), RecordReader("value", schemas)
        self._made = False
        self._moved_at: float | None = None
        self._next: int | None = None  # where the transaction topic is read on
        self._last = Commit()  # up to which batches have been given out
        self._seen: deque[_Seen] = deque()
        self._ripe: deque[_Ended] = deque()

    def whole(self, start: Offsets, ends: Offsets, *, most: int) -> Offsets:
        """Return the greatest ends, up to those given, that split no transaction: about `most` changes after `start`.

        `start` must not split a transaction. A larger transaction is not split. Changes whose marks were removed come
        in one range. An incomplete last transaction is left for the next call. Raises BrokerUnreachable,
        UndecodableChange or TopicMismatch.
        """
        if by_partition(start) == by_partition(ends):
            return ends
        if self._next is None:
            self._next = self._begin(start, ends)
        self._read_ends(most)
        self._ripen(ends)
        self._last = self._take(most)
        cut = self._cut(start, ends)
        if by_partition(cut) == by_partition(start) and self._forgotten():
            cut = ends
        self._complain(stands_still=by_partition(cut) == by_partition(start))
        return cut

    def latest(self, start: Offsets) -> Offsets:
        """Return the greatest current ends after `start` that split no transaction. Waits for a commit on its way.

        Raises BrokerUnreachable, UndecodableChange or TopicMismatch.
        """
        committed = self._offsets.end_offsets(self.topics)
        if self._forgotten():
            return committed
        last = self._last_commit()
        written, until = self._written(), time.monotonic() + _COMMIT_SECONDS
        while not _reached(ends := self._offsets.end_offsets(self.topics), written) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        self._last = last if last is not None and _reached(ends, written) else Commit()
        return self._cut(start, ends)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        self._offsets.close()

    def _complain(self, *, stands_still: bool) -> None:
        """Say now and then that changes wait for the end of their transaction: a long one, or marks that never come."""
        now = time.monotonic()
        if not stands_still or self._moved_at is None:
            self._moved_at = now
        elif now - self._moved_at > _COMPLAIN_SECONDS:
            self._moved_at = now
            log.warning(
                "changes wait for the end of their transaction",
                topics=list(self.topics),
                remedy=f"see whether {self.topic} gets marks: PostgresSource(transactions=True), exactly-once delivery",
            )

    def _cut(self, start: Offsets, ends: Offsets) -> Offsets:
        whole = whole_ends(self._read, by_partition(start), by_partition(ends), last=self._last)
        return {topic: {p: whole[topic, p] for p in parts} for topic, parts in ends.items()}

    def _read(self, ranges: Mapping[Partition, tuple[int, int]]) -> Iterator[tuple[Partition, Change]]:
        """Read changes, and decode those that are asked about."""
        self._reader.seek(by_topic({partition: low for partition, (low, _) in ranges.items()}))
        for record in self._reader.read_up_to(by_topic({partition: high for partition, (_, high) in ranges.items()})):
            if record.value is not None:
                place = partial(read_place, self._changes, record.value, record.place)
                yield (record.topic, record.partition), (record.offset, place)

    def _forgotten(self) -> bool:
        """Whether there were marks and none is left; then all changes that were committed before this look have ended.

        Retention removes marks of a source that is quiet. A transaction's BEGIN is written before its changes are
        committed, and is looked for though it be not committed itself.
        """
        if not self._exists():
            return False
        end = self._offsets.end_offsets([self.topic], committed=False)[self.topic][0]
        return 0 < end == self._topic_beginning()

    def _written(self) -> Offsets:
        return self._offsets.end_offsets(self.topics, committed=False)

    def _read_ends(self, most: int) -> None:
        """Read on in the transaction topic, as far as `most` changes need."""
        waiting = sum(end.events for end in self._ripe) + sum(e.events for seen in self._seen for e in seen.ends)
        if waiting >= most or not self._exists():
            return
        ends: list[_Ended] = []
        # What has been removed meanwhile is covered by the next END.
        for offset, end in self._marks_of(max(self._next or 0, self._topic_beginning()), self._topic_end()):
            self._next = offset + 1
            if end is not None:
                # Transactions of other tables do not pile up: the next END stands for them too.
                if ends and not ends[-1].events:
                    ends.pop()
                ends.append(end)
                waiting += end.events
            if waiting >= most:
                break
        if ends:
            # In this order: what was written before an END was seen is written now.
            self._seen.append(_Seen(ends, self._written()))

    def _ripen(self, ends: Offsets) -> None:
        while self._seen and _reached(ends, self._seen[0].written):
            self._ripe.extend(self._seen.popleft().ends)

    def _take(self, most: int) -> Commit:
        """Take ENDs off for at most so many changes, at least one; the last commit."""
        last, taken = self._last, 0
        while self._ripe and (taken == 0 or taken + self._ripe[0].events <= most):
            end = self._ripe.popleft()
            # A connector that reads its slot again tells of transactions again.
            last, taken = max(last, end.commit), taken + end.events
        return last

    def _begin(self, start: Offsets, ends: Offsets) -> int:
        """Where the ENDs begin of which changes lie behind `start`."""
        if not self._exists():
            return 0
        stop = by_partition(ends)
        waiting = {p: (offset, stop[p]) for p, offset in by_partition(start).items() if offset < stop[p]}
        firsts = (next(self._read({partition: span}), None) for partition, span in waiting.items())
        places = [change[1]() for _, change in filter(None, firsts)]
        least = min((Commit(place.epoch, place.after) for place in places), default=None)
        begun = self._topic_end() if least is None else self._first_end_beyond(least)
        before = self._last_commit(before=begun)
        if before is not None:
            # As if it were read now: some of its changes may not be visible yet.
            self._seen.append(_Seen([_Ended(before, 0)], self._written()))
        return begun

    def _first_end_beyond(self, commit: Commit) -> int:
        """The offset of the first END of a later commit, or of a BEGIN before it: of what followed that commit."""
        low, high = self._topic_beginning(), self._topic_end()
        while low < high:
            middle = (low + high) // 2
            first = next(((offset, end) for offset, end in self._marks_of(middle, high) if end), None)
            if first is None or first[1].commit > commit:
                high = middle
            else:
                low = first[0] + 1
        return low

    def _last_commit(self, *, before: int | None = None) -> Commit | None:
        """The last commit that has an END in the topic, or before an offset."""
        if not self._exists():
            return None
        first, high, span = self._topic_beginning(), self._topic_end() if before is None else before, WINDOW
        while high > first:
            low = max(first, high - span)
            if ends := [end for _, end in self._marks_of(low, high) if end]:
                return ends[-1].commit
            high, span = low, span * 8
        return None

    def _marks_of(self, start: int, stop: int) -> Iterator[tuple[int, _Ended | None]]:
        """The marks in a range: of an END its commit with the events of the tables that are read, None for a BEGIN."""
        if start < stop:
            self._reader.seek({self.topic: {0: start}})
            for record in self._reader.read_up_to({self.topic: {0: stop}}):
                end = read_mark(self._marks, record.value, record.place)
                own = end and sum(count for table, count in end.events.items() if table in self._tables)
                yield record.offset, None if end is None else _Ended(end.commit, own or 0)

    def _exists(self) -> bool:
        """The connector makes the topic with the first transaction; TopicMismatch where marks have no one order."""
        if not self._made and self._offsets.existing([self.topic]):
            count = self._offsets.partitions([self.topic])[self.topic]
            if count != 1:
                raise _several_partitions(self.topic, count)
            self._made = True
        return self._made

    def _topic_beginning(self) -> int:
        return self._offsets.beginning_offsets([self.topic])[self.topic][0]

    def _topic_end(self) -> int:
        return self._offsets.end_offsets([self.topic])[self.topic][0]


def _several_partitions(topic: str, count: int) -> TopicMismatch:
    return TopicMismatch(
        f"topic {topic!r} has {count} partitions, and the marks of transactions stand in their order in one only",
        remedy="delete the topic while the connector is stopped. The connector creates it again, with one",
        place=topic,
    )


def _reached(ends: Offsets, goal: Offsets) -> bool:
    return all(ends[topic][partition] >= offset for topic, parts in goal.items() for partition, offset in parts.items())
