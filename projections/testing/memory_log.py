"""Topics in memory, without a broker and without a file, and change events as Debezium's connectors write them.

Both are for tests of views over captured tables.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa

from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import TopicSpec
from projections.declaring.tables import CapturedTable
from projections.declaring.view_topics import Row
from projections.errors import InvalidDefinition
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import DeadLetters, SourceBoundaries, Uncompacted, arrow_record_schema, record_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PARTITION = 0


class MemoryLog(Uncompacted):
    """A `projections.logs.port.RecordLog` whose topics have one partition each; ``append`` adds to their ends."""

    def __init__(self, schemas: Mapping[int, RegisteredSchema] | None = None) -> None:
        self._schemas = dict(schemas or {})
        self._topics: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
        self._headers: dict[tuple[str, int], dict[str, str | None]] = {}

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        source: str | None = None,
        time: datetime | None = None,
        id: UUID | None = None,
    ) -> int:
        """Add a record, of a service's where ``source`` is given, of an event's ``time`` and id; return its offset."""
        records = self._topics.setdefault(topic, [])
        recorded = None if time is None else time.isoformat()
        self._headers[topic, len(records)] = {"ce_source": source, "ce_time": recorded, "ce_id": str(id or uuid4())}
        records.append((key, value))
        return len(records) - 1

    def records(self, topic: str) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Key and value of every record of a topic."""
        return tuple(self._topics.get(topic, ()))

    @contextmanager
    def open(self) -> Iterator[MemoryLog]:
        """Itself."""
        yield self

    def beginning_offsets(self, topics: Sequence[str]) -> Offsets:
        """Zero: nothing is ever removed."""
        return {topic: {_PARTITION: 0} for topic in topics}

    def end_offsets(self, topics: Sequence[str]) -> Offsets:
        """The number of records."""
        return {topic: {_PARTITION: len(self._topics.get(topic, ()))} for topic in topics}

    def fetch(self, offsets: OffsetRange, *, headed: bool = False) -> pa.Table:
        """The records of a range."""
        schema = arrow_record_schema(headed=headed)
        rows = [
            dict(zip(schema.names, (topic, _PARTITION, start + number, key, value), strict=False))
            | (self._headers.get((topic, start + number), {}) if headed else {})
            for topic, parts in offsets.end.items()
            for start, end in ((offsets.start[topic][_PARTITION], parts[_PARTITION]),)
            for number, (key, value) in enumerate(self._topics.get(topic, ())[start:end])
        ]
        return pa.Table.from_pylist(rows, schema=schema)

    def offsets_at(self, moment: datetime, topics: Sequence[str]) -> Offsets:
        """By the times of events; a change of a row has none, and counts as older."""

        def first(topic: str, end: int) -> int:
            times = (self._headers[topic, offset]["ce_time"] for offset in range(end))
            return next((n for n, time in enumerate(times) if time and datetime.fromisoformat(time) >= moment), end)

        return {t: {p: first(t, end) for p, end in parts.items()} for t, parts in self.end_offsets(topics).items()}

    def deletions_complete_from(self, topics: Sequence[str]) -> Offsets:
        """None: nothing is compacted here."""
        return {}

    def oldest(self, offsets: OffsetRange) -> datetime | None:
        """None: records here have no times."""
        return None

    def dead_letters(self, topics: Sequence[str], *, group: str) -> AbstractContextManager[DeadLetters]:
        """There are no topics for them here; InvalidDefinition."""
        raise InvalidDefinition(
            f"group {group!r} sends bad records to dead-letter topics, and a log in memory has none",
            remedy="test with bad_records='skip', or with a broker",
        )

    def view_topics(self) -> MemoryViewTopics:
        """View topics among these."""
        return MemoryViewTopics(self, self._topics)

    def schemas(self, avro_changelogs: Collection[str] = ()) -> Mapping[int, RegisteredSchema]:
        """Those it was given."""
        return self._schemas

    def transactions(self, prefix: str, topics: Sequence[str]) -> SourceBoundaries:
        """There are none here; InvalidDefinition."""
        raise InvalidDefinition(
            "a log in memory knows no transactions of a source", remedy="test with a broker, or leave them away"
        )

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The records of a range as a DataFrame."""
        return spark.createDataFrame(self.fetch(offsets, headed=headed), record_schema(headed=headed))


@dataclass(frozen=True)
class MemoryViewTopics:
    """A `projections.declaring.view_topics.ViewTopics` over the topics of a log in memory; its own producer too."""

    log: MemoryLog
    topics: dict[str, list[tuple[bytes | None, bytes | None]]]

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing."""
        missing = [topic.name for topic in topics if topic.name not in self.topics]
        self.topics.update({name: [] for name in missing})
        return missing

    def holding(self, topics: Sequence[str]) -> list[str]:
        """Those with records."""
        return [topic for topic in topics if self.topics.get(topic)]

    @contextmanager
    def producer(self, group: str) -> Iterator[MemoryViewTopics]:
        """Itself."""
        yield self

    def send(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Append the rows."""
        for topic, records in rows.items():
            for row in records:
                self.log.append(topic, _bytes(row["key"]), _bytes(row["value"]))

    def ends(self, topic: str) -> Mapping[int, int]:
        """The number of records."""
        return self.log.end_offsets([topic])[topic]

    def keys_between(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> set[str]:
        """The keys of the records of a range."""
        records = self.log.records(topic)[start.get(_PARTITION, 0) : end[_PARTITION]]
        return {(key or b"").decode() for key, _ in records}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class ChangeWriter:
    """Writes the changes of tables into a log in memory, one position after another.

    Values are those that JSON has, and decimals, dates, times, UUIDs, bytes and members of enums: these are written as
    Debezium writes them under our connectors' settings. ``at`` is the position of a change that comes late or again,
    ``committed`` the time of its commit in microseconds since 1970: by default as many seconds as its position.
    """

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.position = 1_000

    def put(
        self, table: CapturedTable, row: Mapping[str, Any], *, at: int | None = None, committed: int | None = None
    ) -> int:
        """Insert or update a row, null in the columns that are not given; returns the position of the change."""
        return self._write(table, row, "u", {**dict.fromkeys(table.columns), **row}, at, committed)

    def delete(
        self, table: CapturedTable, key: Mapping[str, Any], *, at: int | None = None, committed: int | None = None
    ) -> int:
        """Delete a row, with the tombstone behind; returns the position of the change."""
        position = self._write(table, key, "d", None, at, committed)
        self._log.append(table.topic, _key(table, key), None)
        return position

    def _write(
        self, table: CapturedTable, row: Mapping[str, Any], op: str, after: Any, at: int | None, committed: int | None
    ) -> int:
        if at is None:
            self.position += 1
        position = self.position if at is None else at
        time = position * 1_000_000 if committed is None else committed
        source = {"connector": "postgresql", "lsn": position, "snapshot": "false", "ts_us": time}
        change = {"op": op, "before": None, "after": after and _record_of(table, after), "source": source}
        self._log.append(table.topic, _key(table, row), _json(change))
        return position


def _key(table: CapturedTable, row: Mapping[str, Any]) -> bytes:
    """The key as a connector writes it, in the table's order: equal keys are equal bytes."""
    return _json(_record_of(table, {c: row[c] for c in table.key}))


def _record_of(table: CapturedTable, row: Mapping[str, Any]) -> dict[str, Any]:
    return {table.record_name(column): value for column, value in row.items()}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_spelt).encode()


def _spelt(value: Any) -> Any:
    """What JSON has no form for, as Debezium spells it; a time without a zone is UTC."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return f"{value.isoformat()}Z"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.name
    raise InvalidDefinition(
        f"a {type(value).__name__} is no value of a captured column",
        remedy="give numbers, texts, decimals, dates, times, UUIDs, bytes or members of an enum",
    )
