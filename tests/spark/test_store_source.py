"""Spark reads an event store on SQLite: the same records by tasks and by the driver, each once."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from cdc import capture_table
from eventstore import ANY, SqlEventStore
from eventstore.errors import TopicMissing
from projections.logs.offsets import OffsetRange
from projections.spark.reading import store_source
from projections.spark.reading.store_source import StoreLog
from tests.integration.tickets import CUSTOMERS, Ticket

TOPICS = ["ticket", "customers"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Sixty events and as many changes, written in turns."""
    path = tmp_path_factory.mktemp("store") / "desk.db"
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        CUSTOMERS.create(store.engine)
        capture_table(store.engine, CUSTOMERS, topic="customers")
        for number in range(60):
            store.append(f"ticket-t{number % 7}", [Ticket.Moved(customer_id=number)], expected=ANY)
            with store.engine.begin() as connection:
                connection.execute(sa.insert(CUSTOMERS).values(id=number, name=f"name {number}"))
        yield StoreLog(str(path))


def whole(log):
    with log.open() as offsets:
        return OffsetRange(offsets.beginning_offsets(TOPICS), offsets.end_offsets(TOPICS))


def as_rows(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_tasks_and_driver_read_the_same_records_each_once(spark, log, monkeypatch):
    by_driver = log.scan(spark, whole(log))
    monkeypatch.setattr(store_source, "DRIVER_OFFSETS", 0)
    monkeypatch.setattr(store_source, "OFFSETS", 13)
    by_tasks = log.scan(spark, whole(log))
    assert by_tasks.rdd.getNumPartitions() == 10
    assert by_tasks.dtypes == by_driver.dtypes
    rows = as_rows(by_tasks.toArrow())
    with log.open() as opened:
        assert rows == as_rows(by_driver.toArrow()) == as_rows(opened.fetch(whole(log)))
    assert len(rows) == len({row[:3] for row in rows}) == 120


def test_a_range_gives_what_lies_in_it(spark, log):
    part = OffsetRange({"ticket": {0: 11}, "customers": {0: 61}}, {"ticket": {0: 14}, "customers": {0: 61}})
    with log.open() as opened:
        found = opened.fetch(part).to_pylist()
    assert [(r["topic"], r["offset"], r["key"].decode()) for r in found] == [
        ("ticket", 11, "ticket-t3@1"), ("ticket", 12, "ticket-t4@1"), ("ticket", 13, "ticket-t5@1"),
    ]  # fmt: skip


def test_a_topic_that_is_not_there_is_named_with_those_there_are(log):
    with log.open() as offsets, pytest.raises(TopicMissing) as caught:
        offsets.end_offsets(["nowhere"])
    assert "customers, ticket" in caught.value.remedy
