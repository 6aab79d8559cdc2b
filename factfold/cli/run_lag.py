"""How far generations of groups are behind their log, without Spark: what `projections status --lag` adds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventstore import Settings
    from projections.spark.reading.kafka_source import OpenKafkaLog
    from projections.spark.reading.store_source import OpenStoreLog


def open_log(views_url: str, settings: Settings | None = None) -> OpenKafkaLog | OpenStoreLog:
    """Open the log that the views of a URL are made from: their own SQLite file, or Kafka."""
    from projections.stores.opening import sqlite_path

    if embedded := sqlite_path(views_url):
        from projections.spark.reading.store_source import StoreLog

        return StoreLog(embedded).open()
    from eventstore import Settings
    from projections.spark.reading.kafka_source import KafkaLog

    return KafkaLog(settings or Settings()).open()


def add_lag(log: OpenKafkaLog | OpenStoreLog, rows: Iterable[dict[str, Any]]) -> None:
    """Give each row of a generation its ``lag``, by topic: the offsets that the log has, and it has not.

    And ``lag_seconds``: the age of the oldest record that comes next, None if no record says it.
    """
    for row in rows:
        _add(log, row)


def _add(log: OpenKafkaLog | OpenStoreLog, row: dict[str, Any]) -> None:
    from projections.declaring.group import ERASURES
    from projections.lifecycle.lag import waited_seconds, waiting_offsets

    topics = [topic for topic in row["progress"] if topic != ERASURES]
    ends = log.end_offsets(topics) if topics else {}
    seconds = waited_seconds(log, row["progress"], ends, now=datetime.now(UTC))
    row["lag"] = waiting_offsets(row["progress"], ends)
    row["lag_seconds"] = None if seconds is None else round(seconds, 3)
