"""Topics in memory, shown as a broker's clients show them, and a connector that fills them as Debezium does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from eventstore.topics import TopicRecord

PREFIX = "shop"
TABLES = ("public.a", "public.b")
TOPICS = tuple(f"{PREFIX}.{table}" for table in TABLES)
MARKS = f"{PREFIX}.transaction"

Offsets = Mapping[str, Mapping[int, int]]


@dataclass
class Log:
    """One partition."""

    records: dict[int, bytes | None] = field(default_factory=dict)
    beginning: int = 0
    end: int = 0

    def append(self, body: Any) -> None:
        self.records[self.end] = None if body is None else json.dumps(body).encode()
        self.end += 1

    def skip(self, count: int) -> None:
        """Offsets without a record: what compaction and Kafka's own marks leave."""
        self.end += count

    def expire(self) -> None:
        """Remove everything, as retention does."""
        self.beginning, self.records = self.end, {}


class Kafka:
    """A broker's topics; an OffsetReader and a RangeReader at once, which count what is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics: dict[str, list[Log]] = {}
        self.reads = 0
        self._at: Offsets = {}
        monkeypatch.setattr("eventstore.kafka.admin.OffsetReader", lambda settings: self)
        monkeypatch.setattr("eventstore.kafka.consumer.RangeReader", lambda settings: self)

    def existing(self, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if topic in self.topics]

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self.topics[topic]) for topic in topics}

    def end_offsets(self, topics: Iterable[str], *, committed: bool = True) -> dict[str, dict[int, int]]:
        return {t: {p: log.end for p, log in enumerate(self.topics[t])} for t in topics}

    def beginning_offsets(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {t: {p: log.beginning for p, log in enumerate(self.topics[t])} for t in topics}

    def seek(self, offsets: Offsets) -> None:
        self._at = offsets
        for topic, parts in offsets.items():
            assert all(offset >= self.topics[topic][p].beginning for p, offset in parts.items()), "the offset is gone"

    def read_up_to(self, ends: Offsets) -> Iterator[TopicRecord]:
        self.reads += 1
        for topic, parts in self._at.items():
            for partition, start in parts.items():
                for offset, value in self.topics[topic][partition].records.items():
                    if start <= offset < ends[topic][partition]:
                        yield TopicRecord(topic, partition, offset, b"{}", value, (), 0)

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Connector:
    """Sends what a source commits, in its order; `named` is the commit that its changes name."""

    kafka: Kafka
    partitions: int = 2
    epoch: int = 0
    lsn: int = 5
    named: int | None = None
    marks: bool = True

    def __post_init__(self) -> None:
        self._number = 0
        for topic in TOPICS:
            self.kafka.topics[topic] = [Log() for _ in range(self.partitions)]

    def begin_life(self, *, epoch: int, lsn: int) -> None:
        """Go on as after an initial snapshot."""
        self.epoch, self.lsn, self.named = epoch, lsn, None

    def snapshot(self, count: int) -> None:
        """Send so many rows of each table."""
        for table in TABLES:
            self._send(table, count, "true", json.dumps([_text(self.named), str(self.lsn)]))

    def begin(self, **counts: int) -> None:
        """Send a transaction's BEGIN and its changes, table by table."""
        self._number += 1
        self._mark("BEGIN", None)
        for name, count in counts.items():
            self.lsn += 1
            self._send(f"public.{name}", count, "false", json.dumps([_text(self.named), str(self.lsn)]))

    def commit(self, **counts: int) -> None:
        """Send a whole transaction."""
        self.begin(**counts)
        self.end(**counts)

    def end(self, **counts: int) -> None:
        """Send the END of what was begun."""
        self.lsn += 1
        self.named = self.lsn
        self._mark("END", [{"data_collection": f"public.{n}", "event_count": c} for n, c in counts.items()])

    def _mark(self, status: str, counts: Sequence[Mapping[str, Any]] | None) -> None:
        if self.marks:
            body = {"status": status, "id": f"{self._number}:{self.lsn}", "data_collections": counts}
            self.kafka.topics.setdefault(MARKS, [Log()])[0].append(self._of_life(body))

    def _send(self, table: str, count: int, snapshot: str, sequence: str) -> None:
        logs = self.kafka.topics.get(f"{PREFIX}.{table}", [])
        for n in range(count if logs else 0):
            source = {"snapshot": snapshot, "sequence": sequence}
            logs[n % len(logs)].append(self._of_life({"source": source, "number": self._number}))

    def _of_life(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "factfold_epoch": str(self.epoch)} if self.epoch else body


def _text(lsn: int | None) -> str | None:
    return None if lsn is None else str(lsn)
