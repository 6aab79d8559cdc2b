"""How far generations of groups are behind their log, without Spark: what `projections status --lag` adds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import eventstore
from factfold import on_demand

if TYPE_CHECKING:
    from projections.spark.reading.kafka_source import KafkaLog, OpenKafkaLog
    from projections.spark.reading.store_source import OpenStoreLog, StoreLog


def open_log(views_url: str, settings: eventstore.Settings | None = None) -> OpenKafkaLog | OpenStoreLog:
    """Open the log that the views of a URL are made from: their own SQLite file, or Kafka."""
    return log_of(views_url, settings).open()


def log_of(views_url: str, settings: eventstore.Settings | None = None) -> KafkaLog | StoreLog:
    """Return the log that the views of a URL are made from."""
    if embedded := on_demand.sqlite_path(views_url):
        # It loads Spark, and the event store's log of the same name is the one that is loaded on demand.
        from projections.spark.reading.store_source import StoreLog

        return StoreLog(embedded)
    return on_demand.KafkaLog(settings or eventstore.Settings())


def add_lag(log: OpenKafkaLog | OpenStoreLog, rows: Iterable[dict[str, Any]]) -> None:
    """Give each row of a generation its ``lag``, by topic: the offsets that the log has, and it has not.

    And ``lag_seconds``: the age of the oldest record that comes next, None if no record says it.
    """
    for row in rows:
        _add(log, row)


def _add(log: OpenKafkaLog | OpenStoreLog, row: dict[str, Any]) -> None:
    topics = [topic for topic in row["progress"] if topic != on_demand.ERASURES]
    ends = log.end_offsets(topics) if topics else {}
    seconds = on_demand.waited_seconds(log, row["progress"], ends, now=datetime.now(UTC))
    row["lag"] = on_demand.waiting_offsets(row["progress"], ends)
    row["lag_seconds"] = None if seconds is None else round(seconds, 3)
