"""What Prometheus and a tracing backend are shown, with real servers: both roads to Kafka, a slot, the fence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

import cdc
from cdc.operating.connector_metrics import ConnectorMetrics
from eventstore import (
    ANY,
    Aggregate,
    Dispatcher,
    RecordedEvent,
    SqlEventStore,
    command,
    event,
    open_subscriber,
    run_subscription,
    subscription,
)
from eventstore.kafka.consumer import read_range
from eventstore.metrics import RelayMetrics, SubscriptionMetrics
from eventstore.relay import Relay, relay_status
from factfold.watching.looking import Letters, look_at_store, look_at_views
from factfold.watching.metrics import WatchMetrics
from projections.lifecycle.freshness import applied_commits
from projections.logs.ranges import waiting
from projections.spark.reading.kafka_source import KafkaLog
from projections.stores.postgres import PostgresTableStore
from tests.integration.delivering import deliver
from tests.scraping import free_port, scraped
from tests.spans import Recorder
from tests.waiting import wait_until


class Parcel(Aggregate):
    @event
    class Packed:
        grams: int

    @command
    def pack(self, *, grams: int) -> None:
        self.emit(self.Packed(grams=grams))


class Label(Aggregate):
    @event
    class Printed:
        parcel: str

    @command
    def print(self, *, parcel: str) -> None:
        self.emit(self.Printed(parcel=parcel))


@pytest.fixture
def recorder():
    found = Recorder()
    yield found
    found.provider.shutdown()


def parcels(engine):
    """A store whose parcels go to a topic that nobody else has."""
    topic = f"parcel.{uuid.uuid4().hex[:8]}"
    store = SqlEventStore(engine)
    store.create_tables()
    store.declare_category("parcel", partitions=2, topic=topic)
    store.register(Parcel)
    return store, topic


def by_relay(captured, connect, settings):
    store, topic = parcels(captured().engine)
    return store, topic, lambda: Relay(store, settings).run(stop=threading.Event(), once=True)


def by_debezium(captured, connect, settings):
    database = captured()
    store, topic = parcels(database.engine)
    cdc.prepare_topics(settings, [(topic, 2)])
    connector = database.prepared(database.outbox())
    return store, topic, lambda: cdc.apply(connect, connector, source=database.engine)


def printing(dispatcher, topic):
    @subscription(topic, group=f"labels-{uuid.uuid4().hex[:6]}")
    def label(event: Parcel.Packed, recorded: RecordedEvent, tx: sa.Connection) -> None:
        sender = dispatcher.within(tx).with_metadata(recorded.caused())
        sender.send_or_raise("l1", Label.print, parcel=recorded.stream)

    return label


@pytest.mark.parametrize("road", [by_relay, by_debezium])
def test_a_trace_goes_over_kafka_to_the_command_of_the_reaction(road, captured, connect, settings, recorder):
    store, topic, publish = road(captured, connect, settings)
    dispatcher = Dispatcher(store, middleware=[recorder.spans.command])
    dispatcher.send_or_raise("p1", Parcel.pack, grams=5)
    publish()
    declared = printing(dispatcher, topic)
    with open_subscriber(
        declared, settings=settings, engine=store.engine, around=[recorder.spans.handling]
    ) as subscriber:
        assert deliver(subscriber, records=1).handled == 1
    assert recorder.tree() == ["parcel.pack", f"  process {topic}", "    label.print"]
    (trace,) = recorder.traces()
    (record,) = read_range(settings, topic)
    assert dict(record.headers)["traceparent"].decode().split("-")[1] == trace
    (printed,) = store.read_stream("label-l1")
    assert printed.metadata.traceparent.split("-")[1] == trace
    store.close()


def sampled(metrics, family, **labels):
    return metrics.registry.get_sample_value(f"factfold_{family}", labels)


def test_a_relay_shows_what_waits_and_what_it_has_published(captured, settings):
    store, topic = parcels(captured().engine)
    store.append("parcel-p1", [Parcel.Packed(grams=1), Parcel.Packed(grams=2)], expected=ANY)
    metrics = RelayMetrics()
    metrics.behind(relay_status(store, settings))
    assert sampled(metrics, "relay_lag_events", topic=topic) == 2
    assert sampled(metrics, "relay_lag_seconds", topic=topic) > 0
    Relay(store, settings, metrics=metrics).run(stop=threading.Event(), once=True)
    metrics.behind(relay_status(store, settings))
    assert sampled(metrics, "relay_events_total") == 2
    assert sampled(metrics, "relay_is_leader") == 1
    assert sampled(metrics, "relay_lag_events", topic=topic) == 0
    assert sampled(metrics, "relay_lag_seconds", topic=topic) == 0
    store.close()


def test_the_command_serves_what_it_counts_until_it_is_stopped(captured, stack, settings):
    database = captured()
    store, topic = parcels(database.engine)
    store.append("parcel-p1", [Parcel.Packed(grams=1)], expected=ANY)
    port, found = free_port(), {}
    environment = os.environ | {
        "FACTFOLD_STORE_URL": database.engine.url.render_as_string(hide_password=False),
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": stack.info.bootstrap_servers,
        "FACTFOLD_METRICS_PORT": str(port),
    }
    relay = subprocess.Popen([sys.executable, "-m", "factfold", "relay", "run"], env=environment)

    def has_published():
        found.update(scraped(port))
        return found.get(("factfold_relay_events_total",)) == 1 and ("factfold_relay_lag_events", topic) in found

    try:
        wait_until(has_published, what=lambda: f"one event of the relay in {found}")
        assert found["factfold_relay_is_leader",] == 1
    finally:
        relay.terminate()
    assert relay.wait(30) == 0
    store.close()


def test_a_group_shows_its_lag_before_and_after_and_its_dead_letters(captured, settings):
    store, topic = parcels(captured().engine)
    store.append("parcel-p1", [Parcel.Packed(grams=1), Parcel.Packed(grams=2)], expected=ANY)
    Relay(store, settings).run(stop=threading.Event(), once=True)

    @subscription(topic, group="weigh", attempts=1)
    def weigh(event: Parcel.Packed) -> None:
        if event.grams == 2:
            raise ValueError("too heavy")

    metrics, watched = SubscriptionMetrics("weigh"), WatchMetrics()
    letters, home = Letters(settings, None), {"home": f"{topic}.weigh.dead-letter", "topic": topic, "group": "weigh"}
    with open_subscriber(weigh, settings=settings) as subscriber:
        metrics.look(weigh, settings)
        # A transaction's marker takes an offset, too.
        assert sampled(metrics, "subscription_lag_records", group="weigh", topic=topic) >= 2
        assert sampled(metrics, "subscription_lag_seconds", group="weigh", topic=topic) > 0
        letters.look(watched)
        assert sampled(watched, "dead_letters_open", **home) == 0
        assert deliver(subscriber, records=2).dead == 1
    metrics.look(weigh, settings)
    assert sampled(metrics, "subscription_lag_seconds", group="weigh", topic=topic) == 0
    letters.look(watched)
    assert sampled(watched, "dead_letters_open", **home) == 1
    store.close()


def test_a_fence_that_is_held_has_an_age_and_hides_events(captured):
    store, _ = parcels(captured().engine)
    metrics, name = WatchMetrics(), store.engine.url.database
    with store.engine.connect() as holder:
        holder.execute(sa.text("SELECT pg_current_xact_id()"))  # a transaction that may append
        store.append("parcel-p1", [Parcel.Packed(grams=1)], expected=ANY)
        look_at_store(metrics, store)
        first = sampled(metrics, "store_fence_age_seconds", store=name)
        assert first >= 0
        assert sampled(metrics, "store_fence_events", store=name) == 1
        look_at_store(metrics, store)
        assert sampled(metrics, "store_fence_age_seconds", store=name) > first
    store.close()


def test_watching_needs_no_right_but_to_read(captured):
    database = captured()
    store, _ = parcels(database.engine)
    with closing(PostgresTableStore(database.engine.url.render_as_string(hide_password=False))) as owned:
        owned.prepare()
    role = f"{database.name}_watch"
    database.run(
        f"CREATE ROLE {role} LOGIN PASSWORD 'w'",
        f"GRANT USAGE ON SCHEMA public, factfold TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public, factfold TO {role}",
    )
    url = database.engine.url.set(username=role, password="w")
    metrics, views = WatchMetrics(), PostgresTableStore(url.render_as_string(hide_password=False))
    with closing(views), SqlEventStore(url) as watched:
        look_at_store(metrics, watched)
        Letters(None, watched).look(metrics)
        look_at_views(metrics, views, None)
    assert sampled(metrics, "store_fence_events", store=url.database) == 0
    store.close()


def test_a_runner_of_a_subscription_counts_what_it_delivers(captured, settings):
    store, topic = parcels(captured().engine)
    store.append("parcel-p1", [Parcel.Packed(grams=1), Parcel.Packed(grams=2)], expected=ANY)
    Relay(store, settings).run(stop=threading.Event(), once=True)
    stop, metrics, weighed = threading.Event(), SubscriptionMetrics("scales"), []

    @subscription(topic, group="scales")
    def weigh(event: Parcel.Packed) -> None:
        weighed.append(event.grams)
        if len(weighed) == 2:
            stop.set()

    assert run_subscription(weigh, stop=stop, settings=settings, metrics=metrics).handled == 2
    assert sampled(metrics, "subscription_records_total", group="scales", outcome="handled") == 2
    assert sampled(metrics, "subscription_handler_seconds_count", group="scales") == 2
    store.close()


def test_a_connector_shows_its_tasks_its_slot_and_the_time_of_its_last_event(captured, connect, settings):
    database = captured()
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    source = database.prepared(database.source(tables=["public.items"]))
    cdc.prepare_topics(settings, [])
    from eventstore.kafka.admin import ensure_topics

    ensure_topics(settings, source.topic_specs)
    cdc.apply(connect, source, source=database.engine)
    before = datetime.now(UTC).timestamp()
    database.run("INSERT INTO items VALUES (1)")
    metrics, labels = ConnectorMetrics(), {"connector": source.name}

    def shows_the_event():
        metrics.standing([cdc.health(connect, source, source=database.engine)])
        found = sampled(metrics, "connector_last_event_timestamp_seconds", **labels)
        return found is not None and found >= before - 1

    wait_until(shows_the_event, what=lambda: "the commit of the insert")
    slot = labels | {"slot": database.slots()[0]}
    assert sampled(metrics, "connector_is_well", **labels) == 1
    assert sampled(metrics, "connector_tasks", **labels, state="RUNNING") == 1
    assert sampled(metrics, "connector_tasks", **labels, state="FAILED") == 0
    assert sampled(metrics, "connector_slot_is_active", **slot) == 1
    assert sampled(metrics, "connector_slot_retained_bytes", **slot) >= 0
    assert sampled(metrics, "connector_slot_is_lost", **slot) == 0


def test_the_freshness_of_a_view_is_the_commit_of_what_it_has_applied(captured, connect, settings):
    """Of a captured row that is its transaction's time in the database, and not the broker's."""
    database = captured()
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    source = database.prepared(database.source(tables=["public.items"]))
    from eventstore.kafka.admin import ensure_topics

    ensure_topics(settings, source.topic_specs)
    cdc.apply(connect, source, source=database.engine)
    topic, began = source.topic("public.items"), datetime.now(UTC)
    database.run("INSERT INTO items VALUES (1)")
    database.run("DELETE FROM items")  # whose tombstone says no time
    with KafkaLog(settings).open() as log:
        ends = {}

        def are_there():
            ends.update(log.end_offsets([topic]))
            return waiting({}, ends).records >= 3

        wait_until(are_there, what=lambda: f"three records in {ends}")
        found = applied_commits(log, ends)
        assert began.timestamp() - 1 <= found[topic].timestamp() <= datetime.now(UTC).timestamp()
        nothing = {topic: dict.fromkeys(ends[topic], 0)}
        assert applied_commits(log, nothing) == {}
