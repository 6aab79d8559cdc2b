"""The console over real servers: lag in Kafka's topics, views in PostgreSQL, connectors of a worker."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from eventstore import Settings, subscription
from eventstore.kafka.consumer import read_range
from eventstore.relay import Relay
from eventstore.topics import partition_of
from factfold.console.definitions import Definitions
from factfold.console.places import Places
from factfold.console.sources import Sources
from projections import ProjectionGroup, Table, branches, field, on, sql_view
from projections.declaring.columns import ColumnType
from projections.stores.postgres import PostgresTableStore
from tests.connectors import heartbeats
from tests.crates import Crate, crate_store, fill, topic_of
from tests.integration.log_writer import LogWriter
from tests.integration.tickets import CUSTOMERS, Ticket
from tests.unit.console.conftest import Browser, cells
from tests.waiting import wait_until

COLUMNS = {"heavy": {"crate_id": ColumnType("string"), "grams": ColumnType("long")}}
CONNECTOR = "console_heartbeats"


@pytest.fixture
def served(stack, connect, database, monkeypatch, connectors_go):
    """A browser of a service with three events in a topic, of which its view has applied none, and one connector."""
    servers = stack.info.bootstrap_servers
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", servers)
    store_url, views_url = database(), database()
    store = crate_store(store_url)
    topic = topic_of(store)
    fill(store, "a", "b", "c")
    assert Relay(store, Settings()).run(stop=Event(), once=True).events == 3
    definitions = _definitions(topic)
    _serve(views_url, next(iter(definitions.groups.values())), topic)
    connect.create(CONNECTOR, heartbeats(servers))
    places = Places(store_url=store_url, views_url=views_url, connect_url=connect.url, kafka=True,
                    checkpoints=Path("/nowhere"))  # fmt: skip
    opened = Sources(places, definitions, every=0.0, patience=60.0)
    yield Browser(opened), topic
    opened.close()
    store.close()


def _definitions(topic: str) -> Definitions:
    crates = Table.from_events(Crate, key="crate_id", columns={"grams": on(Crate.Filled).take("grams")}, topic=topic)
    heavy = sql_view("heavy", "SELECT crate_id, grams FROM crates", tables={"crates": crates})
    routed = branches(Crate, {"heavy": field("grams") > 100}, otherwise="light", topic=topic)

    @subscription(topic, group=f"loading-{uuid.uuid4().hex[:8]}")
    def load(event: Crate.Filled) -> None: ...

    return Definitions(
        groups={"depot:group": ProjectionGroup("depot", [heavy])}, branches={"depot:routed": routed},
        subscriptions={"depot:load": load}, aggregates={"depot:Crate": Crate},
    )  # fmt: skip


def _serve(url: str, group: ProjectionGroup, topic: str) -> None:
    store = PostgresTableStore(url)
    store.prepare()
    run, layout = store.begin_generation(group, COLUMNS)
    place = {"_epoch": [0], "_pos": [0], "_offset": [0], "_deleted": [False]}
    row = {"crate_id": ["a"], "grams": pa.array([0], pa.int64())}
    store.target(layout.tables["crates"].state).append(pa.table({**row, **place}))
    store.target(layout.views["heavy"].view).append(pa.table(row))
    store.index_generation(group, layout)
    store.serve(group, run, layout, {topic: dict.fromkeys(range(3), 0)})
    store.close()


def test_what_waits_in_kafka_is_shown_for_groups_and_subscriptions(served):
    browser, _ = served
    rows = {row[1]: row for row in cells(browser.page("/"), "#watched")}
    assert rows["group"][4] == rows["subscription"][4]
    assert int(rows["group"][4]) >= 3  # offsets count the markers of transactions, too
    assert rows["subscription"][5].endswith(" s")
    assert rows["subscription"][5] != "0.0 s"


def test_branches_whose_topics_are_missing_break_no_page(served):
    browser, topic = served
    row = {row[1]: row for row in cells(browser.page("/"), "#watched")}["branches"]
    assert row[0] == "unknown"
    assert f"topic {topic}.heavy" in row[3] or "does not exist" in row[3] or topic in row[3]


def test_a_connector_of_the_worker_is_shown_once_it_runs(served):
    browser, _ = served
    wait_until(lambda: {row[2]: row[0] for row in cells(browser.page("/"), "#watched")}.get(CONNECTOR) == "well")
    (connector,) = [one for one in browser.json("/api/overview")["watched"] if one["kind"] == "connector"]
    assert connector["says"] == "RUNNING, task 0 RUNNING"


def test_a_row_of_a_view_in_postgresql_leads_to_the_partition_of_its_record(served):
    browser, topic = served
    page = browser.page("/view?group=depot&view=heavy&key.crate_id=a")
    why = cells(page, "#why")
    assert [row[0] for row in why] == ["heavy", "crates"]
    assert why[1][3].startswith(f"crate-a{topic}[{partition_of('crate-a', 3)}]@0")


def test_a_captured_row_leads_to_the_partition_whose_record_has_its_key(stack, database, monkeypatch):
    settings = Settings.for_broker(stack.info.bootstrap_servers)
    writer = LogWriter(settings, Ticket, CUSTOMERS)
    topic = writer.changes_topics["customers"]
    writer.send([writer.change("customers", "c", {"id": number, "name": f"n{number}"}) for number in range(1, 10)])
    customers = Table.from_changelog(CUSTOMERS, topic=topic)
    named = sql_view("named", "SELECT id, name FROM customers", tables={"customers": customers})
    url, group = database(), ProjectionGroup("names", [named])
    offsets = _offsets(settings, topic)
    _store_customers(url, group, topic, offsets)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    definitions = Definitions(groups={"names:group": group})
    with Sources(Places(views_url=url, kafka=True), definitions, patience=60.0) as sources:
        browser = Browser(sources)
        for number, (partition, offset) in offsets.items():
            why = cells(browser.page(f"/view?group=names&view=named&key.id={number}"), "#why")
            assert f"{topic}[{partition}]@{offset}" in why[1][3]


def _offsets(settings: Settings, topic: str) -> dict[int, tuple[int, int]]:
    """Where the record of each customer is."""
    return {json.loads(record.key)["id"]: (record.partition, record.offset) for record in read_range(settings, topic)}


def _store_customers(url: str, group: ProjectionGroup, topic: str, offsets: dict[int, tuple[int, int]]) -> None:
    store = PostgresTableStore(url)
    store.prepare()
    columns = {"named": {"id": ColumnType("long"), "name": ColumnType("string")}}
    run, layout = store.begin_generation(group, columns)
    ids, row = list(offsets), {"name": [f"n{number}" for number in offsets]}
    at = {"_epoch": [0] * len(ids), "_pos": ids, "_offset": [offset for _, offset in offsets.values()],
          "_deleted": [False] * len(ids)}  # fmt: skip
    kind = group.tables["customers"].columns["id"].arrow()
    store.target(layout.tables["customers"].state).append(pa.table({"id": pa.array(ids, kind), **row, **at}))
    store.target(layout.views["named"].view).append(pa.table({"id": ids, **row}))
    store.index_generation(group, layout)
    store.serve(group, run, layout, {topic: dict.fromkeys(range(3), 0)})
    store.close()


def test_a_worker_that_is_away_holds_up_no_page_and_says_what_to_start(served):
    browser, _ = served
    places = Places(connect_url="http://127.0.0.1:9", store_url=browser.sources.clients.places.store_url)
    with Sources(places, patience=0.2) as sources:
        away = Browser(sources)
        begun = time.perf_counter()
        away.page("/")
        assert time.perf_counter() - begun < 2.0  # imports included
        wait_until(lambda: "no Kafka Connect worker answers" in away.page("/").css_first("#empty").text())
        assert cells(away.page("/"), "#watched")[0][2] == "event store"
