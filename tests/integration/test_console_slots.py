"""Behind a connector's states: the slot of a real database, and what its notification topic says of snapshots."""

from __future__ import annotations

import json
import uuid

import pytest
import sqlalchemy as sa
from confluent_kafka import Producer

from eventstore import Settings
from eventstore.kafka.admin import ensure_topics
from eventstore.topics import TopicSpec
from factfold.console.places import Places
from factfold.console.sources import Sources
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.stub_connect import StubConnect, connect_worker

SAID = [
    {"type": "STARTED", "additional_data": {"connector_name": "orders", "data_collections": "public.a,public.b"}},
    {"type": "IN_PROGRESS", "additional_data": {"connector_name": "orders", "data_collections": "public.a,public.b",
     "current_collection_in_progress": "public.a", "chunk_index": "3", "total_chunks": "8"}},
    {"type": "TABLE_SCAN_COMPLETED", "additional_data": {"connector_name": "orders", "scanned_collection": "public.a",
     "total_rows_scanned": "1234", "status": "SUCCEEDED"}},
    {"type": "STARTED", "additional_data": {"connector_name": "another"}},
]  # fmt: skip


@pytest.fixture
def slot(database):
    """A database and a replication slot of it that holds some log."""
    url, name = database(), f"console_{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
        connection.exec_driver_sql("CREATE TABLE filled AS SELECT generate_series(1, 10000) AS number")
        yield url, name
        connection.exec_driver_sql(f"SELECT pg_drop_replication_slot('{name}')")
    engine.dispose()


@pytest.fixture
def browser(stack, slot, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    (url, name), topic, stub = slot, f"notes-{uuid.uuid4().hex[:8]}", StubConnect()
    ensure_topics(Settings(), [TopicSpec(topic, 1, {})])
    producer = Producer(Settings().kafka.librdkafka())
    for number, said in enumerate(SAID):
        body = {"id": "1", "aggregate_type": "Initial Snapshot", "timestamp": 1795349211365 + number, **said}
        producer.produce(topic, json.dumps(body))
    assert producer.flush(30) == 0
    stub.add("orders")
    stub.settings = {"slot.name": name, "notification.sink.topic.name": topic,
                     "database.dbname": sa.make_url(url).database or ""}  # fmt: skip
    with connect_worker(stub) as worker:
        places = Places(connect_url=worker, source_url=url, kafka=True)
        with Sources(places, every=0.0, patience=60.0) as sources:
            yield Browser(sources)


def test_a_slot_shows_how_much_log_waits_and_is_held(browser, slot):
    (row,) = cells(browser.page("/connectors"), "#connectors")
    assert row[4].endswith(("KiB", "MiB"))
    assert row[5].endswith(("KiB", "MiB"))
    said = browser.page("/connectors?name=orders").css_first("#slot").text()
    assert said.startswith(f"{slot[1]}, not read, behind ")
    assert browser.json("/api/connectors")["connectors"][0]["slot"]["lag_bytes"] > 100_000


def test_a_snapshot_shows_its_progress_and_not_that_of_another_connector(browser):
    rows = cells(browser.page("/connectors?name=orders"), "#snapshots")
    assert [row[2] for row in rows] == ["TABLE_SCAN_COMPLETED", "IN_PROGRESS", "STARTED"]
    assert rows[0][3:5] == ["public.a", "1,234"]
    assert rows[1][5] == "3 of 8"
    assert rows[2][3] == "2 tables"


def test_a_source_of_another_database_shows_no_slot(browser, slot, database):
    places = browser.sources.clients.places
    other = Places(connect_url=places.connect_url, source_url=database(), kafka=True)
    with Sources(other, every=0.0, patience=60.0) as sources:
        elsewhere = Browser(sources)
        assert elsewhere.json("/api/connectors")["connectors"][0]["slot"] is None
        assert (
            "its source was not looked into" in elsewhere.page("/connectors?name=orders").css_first("#connector").text()
        )
