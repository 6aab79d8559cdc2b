"""What Prometheus and a tracing backend are shown, with real servers: both roads to Kafka, a slot, the fence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime

import cdc
from eventstore import ANY, Aggregate, SqlEventStore, event, open_subscriber, subscription
from eventstore.metrics import SubscriptionMetrics
from eventstore.relay import Relay
from factfold.watching.metrics import Letters, WatchMetrics, look_at_store, look_at_views
from projections.lifecycle.metrics import applied_commits
from projections.logs.offsets import waiting
from projections.spark.reading.kafka_source import KafkaLog
from projections.stores.postgres import PostgresTableStore
from tests.integration.delivering import deliver
from tests.scraping import free_port, scraped
from tests.waiting import wait_until


class Parcel(Aggregate):
    @event
    class Packed:
        grams: int


def parcels(engine):
    """A store whose parcels go to a topic that nobody else has."""
    topic = f"parcel.{uuid.uuid4().hex[:8]}"
    store = SqlEventStore(engine)
    store.create_tables()
    store.declare_category("parcel", partitions=2, topic=topic)
    store.register(Parcel)
    return store, topic


def sampled(metrics, family, **labels):
    return metrics.registry.get_sample_value(f"factfold_{family}", labels)


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
    letters, home = Letters(watched), {"home": f"{topic}.weigh.dead-letter", "topic": topic, "group": "weigh"}
    with open_subscriber(weigh, settings=settings) as subscriber:
        metrics.look(weigh, settings)
        # A transaction's marker takes an offset, too.
        assert sampled(metrics, "subscription_lag_records", group="weigh", topic=topic) >= 2
        assert sampled(metrics, "subscription_lag_seconds", group="weigh", topic=topic) > 0
        letters.look_at_topics(settings)
        assert sampled(watched, "dead_letters_open", **home) == 0
        assert deliver(subscriber, records=2).dead == 1
    metrics.look(weigh, settings)
    assert sampled(metrics, "subscription_lag_seconds", group="weigh", topic=topic) == 0
    letters.look_at_topics(settings)
    assert sampled(watched, "dead_letters_open", **home) == 1
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
        Letters(metrics).look_at_store(watched)
        look_at_views(metrics, views, None)
    assert sampled(metrics, "store_fence_events", store=url.database) == 0
    store.close()


def test_the_freshness_of_a_view_is_the_commit_of_what_it_has_applied(captured, connect, settings):
    """Of a captured row that is its transaction's time in the database, and not the broker's."""
    database = captured("CREATE TABLE items (id int PRIMARY KEY)")
    source = database.prepared(database.source(tables=["public.items"]))
    from eventstore.kafka.admin import ensure_topics

    ensure_topics(settings, source.topic_specs)
    cdc.apply_connector(connect, source, source=database.engine)
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
