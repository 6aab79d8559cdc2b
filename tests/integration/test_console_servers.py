"""The console over real servers: lag, members and letters in Kafka, views and slots of PostgreSQL, connectors."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
import sqlalchemy as sa
from confluent_kafka import Producer

from eventstore import Settings, run_subscription, subscription
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.groups import group_offsets
from eventstore.relay import Relay
from eventstore.topics import TopicSpec, partition_of
from factfold.console.parts import Places
from factfold.console.sources import Sources
from factfold.discovery import Definition, Discovery
from projections import ProjectionGroup, Table, branches, field, on, sql_view
from projections.declaring.columns import ColumnType
from projections.stores.postgres import PostgresTableStore
from sample_app.background import Background
from tests.connectors import heartbeats
from tests.crates import Crate, crate_store, fill, topic_of
from tests.unit.console.conftest import Browser, cells
from tests.unit.console.stub_connect import StubConnect, connect_worker
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


def _definitions(topic: str) -> Discovery:
    crates = Table.from_events(Crate, key="crate_id", columns={"grams": on(Crate.Filled).take("grams")}, topic=topic)
    heavy = sql_view("heavy", "SELECT crate_id, grams FROM crates", tables={"crates": crates}, key="crate_id")
    routed = branches(Crate, {"heavy": field("grams") > 100}, otherwise="light", topic=topic)

    @subscription(topic, group=f"loading-{uuid.uuid4().hex[:8]}")
    def load(event: Crate.Filled) -> None: ...

    return Discovery(definitions=(
        Definition("projections", "depot:group", ProjectionGroup("depot", [heavy])),
        Definition("branches", "depot:routed", routed),
        Definition("subscription", "depot:load", load),
        Definition("aggregate", "depot:Crate", Crate),
    ))  # fmt: skip


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
    wait_until(lambda: {row[2]: row[0] for row in cells(browser.page("/"), "#watched")}.get(CONNECTOR) == "healthy")
    (connector,) = [one for one in browser.json("/api/overview")["watched"] if one["kind"] == "connector"]
    assert connector["says"] == "RUNNING, task 0 RUNNING"


def test_a_row_of_a_view_in_postgresql_leads_to_the_partition_of_its_record(served):
    browser, topic = served
    page = browser.page("/view?group=depot&view=heavy&key.crate_id=a")
    why = cells(page, "#why")
    assert [row[0] for row in why] == ["heavy", "crates"]
    assert why[1][3].startswith(f"crate-a{topic}[{partition_of('crate-a', 3)}]@0")


class Depot:
    """A topic with three events, two subscriptions to it, and a console over both."""

    def __init__(self, topic: str, store_url: str) -> None:
        marker = uuid.uuid4().hex[:8]

        @subscription(topic, group=f"loading-{marker}")
        def load(event: Crate.Filled) -> None: ...

        @subscription(topic, group=f"breaking-{marker}", attempts=1)
        def break_(event: Crate.Filled) -> None:
            raise ValueError(f"crate of {event.grams} g is broken")

        self.topic, self.load, self.break_ = topic, load, break_
        declared = Discovery(definitions=(
            Definition("subscription", "depot:load", load), Definition("subscription", "depot:break", break_),
        ))  # fmt: skip
        places = Places(store_url=store_url, kafka=True)
        self.sources = Sources(places, declared, every=0.0, patience=60.0)
        self.browser = Browser(self.sources)

    def outcome(self, path: str, **fields: str) -> str:
        answer = self.browser.act(path, **fields)
        assert answer.status_code == 303, answer.text
        return self.browser.page(answer.headers["location"]).css_first(".outcome").text()


@pytest.fixture
def depot(stack, database, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    store_url = database()
    store = crate_store(store_url)
    fill(store, "a", "b", "c")
    assert Relay(store, Settings()).run(stop=Event(), once=True).events == 3
    opened = Depot(topic_of(store), store_url)
    yield opened
    opened.sources.close()
    store.close()


def delivering(declared):
    return Background(lambda stop: run_subscription(declared, stop=stop, settings=Settings()), name=declared.group)


def test_a_group_moves_to_the_offsets_that_its_preview_has_shown(depot):
    page = depot.browser.page(f"/subscriptions?group={depot.load.group}&topic={depot.topic}&to=end")
    moves = {row[0]: row[2] for row in cells(page, "#moves")}
    assert group_offsets(Settings(), depot.topic, group=depot.load.group) == {}, "a preview moves nothing"
    form = {one.attributes["name"]: one.attributes["value"] for one in page.css("#preview input[type=hidden]")}
    assert f"moved in {depot.topic}" in depot.outcome("/subscriptions/reset", **form)
    moved = group_offsets(Settings(), depot.topic, group=depot.load.group)
    assert moves == {f"{depot.topic}[{partition}]": f"{offset:,}" for partition, offset in moved.items()}
    again = depot.browser.page(f"/subscriptions?group={depot.load.group}&topic={depot.topic}&to=beginning")
    assert f"{sum(moved.values())} records come again" in again.css_first("#preview").text()


def test_members_are_shown_and_a_group_with_members_is_not_moved(depot):
    of_group = f"/subscriptions?group={depot.load.group}"
    assert "No member" in depot.browser.page(of_group).css_first("#members").text()
    with delivering(depot.load).running():
        wait_until(lambda: cells(depot.browser.page(of_group), "#members"), what="a member")
        (member,) = cells(depot.browser.page(of_group), "#members")
        assert f"{depot.topic}[0]" in member[2]
        page = depot.browser.page(f"{of_group}&topic={depot.topic}&to=beginning")
        assert "Stop them first" in page.css_first("#preview").text()
        given = {"group": depot.load.group, "topic": depot.topic, "offsets": "0=0"}
        assert "has 1 members" in depot.outcome("/subscriptions/reset", **given)


def test_letters_of_a_topic_are_shown_and_settled(depot):
    home = f"topic:{depot.topic}:{depot.break_.group}"

    def opened():
        homes = depot.browser.json("/api/letters")["homes"]
        return {one["key"]: one["open"] for one in homes}.get(home)

    with delivering(depot.break_).running():
        wait_until(lambda: opened() == 3, what="three letters")
    page = depot.browser.page(f"/letters?home={home}")
    assert cells(page, "#causes")[0][1].startswith("ValueError: crate of … g is broken")
    first, second, third = (one["id"] for one in depot.browser.json(f"/api/letters?home={home}")["detail"]["letters"])
    letter = depot.browser.page(f"/letters?home={home}&id={first}")
    assert '"grams"' in letter.css_first("#edit textarea").text()
    assert "1 discarded" in depot.outcome("/letters/discard", home=home, ids=first, why="broken for good")
    assert "2 replayed" in depot.outcome("/letters/replay", home=home, ids=f"{second} {third}")
    assert opened() == 0
    done = cells(depot.browser.page(f"/letters?home={home}"), "#done")
    assert {row[4] for row in done} == {"sent", "discarded: broken for good"}


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


def test_a_relay_without_a_leader_has_failed_and_what_it_published_is_counted(depot):
    (relay,) = [one for one in depot.browser.json("/api/overview")["watched"] if one["kind"] == "relay"]
    assert (relay["health"], relay["records"], relay["remedy"]) == ("failed", 0, "factfold relay run")
    assert depot.sources.look().trend("relay relay published").samples[0] >= 3
    assert depot.sources.look().trend(f"subscription {depot.load.group} handled").samples[0] == 0.0
