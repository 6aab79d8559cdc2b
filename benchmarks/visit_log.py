"""Visits and clicks of persons over one day, as a connector writes them to Kafka, and the views of time over them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from benchmarks.shop_log import PARTITIONS
from eventstore import Settings
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import changelog_topic
from projections import (
    ProjectionGroup,
    Table,
    field,
    join_as_of,
    join_within,
    label,
    match_pattern,
    session,
    sql_view,
    tumbling,
    view,
    windowed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERSONS, PAGES = 2_000, 10
VISITS, CLICKS = "site.public.visits", "site.public.clicks"
_DAY = 24 * 60 * 60 * 1000  # milliseconds
_KEYS = {VISITS: "visit_id", CLICKS: "click_id"}
_TIMES = {VISITS: "visited_at", CLICKS: "clicked_at"}
_METADATA = sa.MetaData()


def _captured(topic: str) -> Table:
    columns = (
        sa.Column("person", sa.BigInteger, primary_key=True),
        sa.Column(_KEYS[topic], sa.BigInteger, primary_key=True),
        sa.Column(_TIMES[topic], sa.DateTime(timezone=True)),
        sa.Column("page", sa.BigInteger),
    )
    return Table.from_changelog(sa.Table(topic.rpartition(".")[2], _METADATA, *columns), topic=topic)


visits, clicks = _captured(VISITS), _captured(CLICKS)
_COUNTED = "SELECT person, window_start, count(*) AS visits FROM placed GROUP BY person, window_start"
_by_minute = windowed("visits_by_minute", visits, tumbling("1 minute"), on="visited_at", columns=[])
_by_session = windowed("visits_by_session", visits, session("15 minutes", by="person"), on="visited_at", columns=[])
_looks, _buys = label("looks", field("page") < 3), label("buys", field("page") == PAGES - 1)


@view(by="person", key=("visit_id", "click_id"))
def clicks_after_visits(visits: DataFrame, clicks: DataFrame) -> DataFrame:
    """Each visit with the person's clicks of the next ten minutes."""
    times = ("visited_at", "clicked_at")
    return join_within(
        visits, clicks, on="person", times=times, upper="10 minutes", how="inner", take=["click_id", "clicked_at"]
    )


@view(by="person", key="click_id")
def clicks_with_visits(clicks: DataFrame, visits: DataFrame) -> DataFrame:
    """Each click with the person's last visit before it."""
    times = ("clicked_at", "visited_at")
    return join_as_of(clicks, visits, on="person", times=times, take=["visit_id", "visited_at"])


@view(by="person", key="visit_id")
def purchases(visits: DataFrame) -> DataFrame:
    """Three looks in a row and then a purchase, within an hour."""
    pattern = _looks.times(3).followed_by(_buys).within("1 hour")
    measures = {"bought_id": _buys.last("visit_id"), "bought_at": _buys.last("visited_at")}
    return match_pattern(visits, pattern, by="person", time="visited_at", key="visit_id", measures=measures)


GROUPS = {
    "tumbling": ProjectionGroup("minutes", [sql_view("visits_per_minute", _COUNTED, tables={"placed": _by_minute})]),
    "session": ProjectionGroup("sessions", [sql_view("visits_per_session", _COUNTED, tables={"placed": _by_session})]),
    "interval": ProjectionGroup("intervals", [clicks_after_visits]),
    "asof": ProjectionGroup("asof", [clicks_with_visits]),
    "pattern": ProjectionGroup("patterns", [purchases]),
}


@dataclass
class VisitLog:
    """Both topics: first rows in the order of their times, then changes at any time of the day.

    A person's records are in one partition, as Debezium's PartitionRouting writes them. The key is the table's.
    """

    settings: Settings

    def __post_init__(self) -> None:
        self._producer = RecordProducer(self.settings)
        self._chance = random.Random(7)  # noqa: S311 - which person, not a secret
        self._position = 0
        self._persons: dict[str, list[int]] = {VISITS: [], CLICKS: []}
        ensure_topics(self.settings, [changelog_topic(topic, partitions=PARTITIONS) for topic in self._persons])

    def fill(self, count: int) -> None:
        """Write so many visits, and as many clicks."""
        topics = [*[VISITS] * count, *[CLICKS] * count]
        self._chance.shuffle(topics)
        times = sorted(self._chance.choices(range(_DAY), k=len(topics)))
        self._producer.send(self._new(topic, time) for topic, time in zip(topics, times, strict=True))

    def change(self, topics: Sequence[str], count: int) -> None:
        """Write late rows, and as many rows that get another time, at any time of the day and in turn to the topics."""
        self._producer.send(self._changes(topics, count))

    def records(self, topics: Sequence[str]) -> int:
        """How many rows the topics have: a rebuild reads as many records before anything is changed."""
        return sum(len(self._persons[topic]) for topic in topics)

    def _changes(self, topics: Sequence[str], count: int) -> Iterator[OutgoingRecord]:
        for number in range(count):
            topic, time = topics[number % len(topics)], self._chance.randrange(_DAY)
            corrected = number // len(topics) % 2
            known = self._chance.randrange(len(self._persons[topic]))
            yield self._record(topic, known, time) if corrected else self._new(topic, time)

    def _new(self, topic: str, time: int) -> OutgoingRecord:
        self._persons[topic].append(self._chance.randrange(PERSONS))
        return self._record(topic, len(self._persons[topic]) - 1, time)

    def _record(self, topic: str, number: int, time: int) -> OutgoingRecord:
        self._position += 1
        person = self._persons[topic][number]
        key = {"person": person, _KEYS[topic]: number}
        after = {**key, _TIMES[topic]: _moment(time), "page": self._chance.randrange(PAGES)}
        source = {"connector": "postgresql", "lsn": self._position, "snapshot": "false"}
        value = {"op": "u", "before": None, "after": after, "source": source}
        return OutgoingRecord(topic=topic, key=_json(key), value=_json(value), partition=person % PARTITIONS)


def _moment(milliseconds: int) -> str:
    seconds, fraction = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    return f"2026-03-01T{minutes // 60:02}:{minutes % 60:02}:{second:02}.{fraction:03}Z"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
