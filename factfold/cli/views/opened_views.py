"""The views of a command's URL and the log that they are made from, opened without Spark; how far runs are behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eventstore
from factfold import on_demand
from projections.errors import TableStoreUnavailable

if TYPE_CHECKING:
    from projections import ProjectionGroup
    from projections.spark.reading.kafka_source import KafkaLog, OpenKafkaLog
    from projections.spark.reading.store_source import OpenStoreLog, StoreLog
    from projections.stores.sql import TableStore


@contextmanager
def opened_views(views_url: str) -> Iterator[TableStore]:
    """Open the table store of a URL; TableStoreUnavailable for a SQLite file that is not there."""
    if (path := on_demand.sqlite_path(views_url)) is not None:
        require_file(path)
    store = on_demand.open_table_store(views_url)
    try:
        yield store
    finally:
        store.close()


def require_file(path: str) -> None:
    """Raise TableStoreUnavailable for a SQLite file that is missing, since its views are made of its own events."""
    if not Path(path).exists():
        raise TableStoreUnavailable(
            "there is no such file",
            remedy="check the URL, or create the event store: factfold store migrate",
            place=path,
        )


def require_serving(views_url: str, group: str) -> None:
    """Raise NoServingGeneration before Spark starts, if no generation of a group serves."""
    with opened_views(views_url) as store:
        store.prepare()  # the tables of a database that has no views yet
        store.serving_state(group)


def require_same_definition(views_url: str, group: ProjectionGroup) -> None:
    """Raise NoServingGeneration, or DefinitionChanged if the code's definition differs from the serving one."""
    with opened_views(views_url) as store:
        store.prepare()
        state = store.serving_state(group.name)
    on_demand.require_unchanged(group, state, state.built.get("columns", {}))


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
        topics = [topic for topic in row["progress"] if topic != on_demand.ERASURES]
        ends = log.end_offsets(topics) if topics else {}
        seconds = on_demand.waited_seconds(log, row["progress"], ends, now=datetime.now(UTC))
        row["lag"] = on_demand.waiting_offsets(row["progress"], ends)
        row["lag_seconds"] = None if seconds is None else round(seconds, 3)
