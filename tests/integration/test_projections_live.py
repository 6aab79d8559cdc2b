"""Live = rebuild = independent oracle, over random histories cut into random batches, on real Kafka and PostgreSQL."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore.errors import TopicMissing
from eventstore.kafka.admin import end_offsets, ensure_topics, limit_retention
from eventstore.topics import event_topic
from projections import open_runner, rebuild, verify
from projections.errors import OffsetsLost
from projections.spark import exchange
from tests.integration.log_writer import PARTITIONS, LogWriter
from tests.integration.test_archive import expire
from tests.integration.ticket_history import TicketHistory, assert_views_as_expected, view_rows
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group
from tests.tiers import first_of
from tests.waiting import wait_until


@pytest.fixture
def road(environment):
    env = environment()
    writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
    return env, writer, ticket_group(writer)


@pytest.fixture
def rows_travel(request, monkeypatch):
    """Small sets go through the driver; with a bound of 3 rows everything takes the way of large sets."""
    if request.param == "by executors":
        monkeypatch.setattr(exchange, "DRIVER_ROWS", 3)
    return request.param


@first_of("rows_travel", "by executors", "by the driver")
def test_live_views_equal_the_oracle_after_every_batch_and_a_rebuild_at_the_end(road, rows_travel):
    env, writer, group = road
    seed = len(rows_travel)
    # Executors take a second for a batch, however small.
    rounds, sizes = (4, [40, 1_000]) if rows_travel == "by the driver" else (2, [150, 1_000])
    history, cuts = TicketHistory(writer, seed), random.Random(seed)
    writer.send([record for _ in range(40) for record in history.step()])
    rebuild(env, group)
    assert_views_as_expected(env, history)
    with open_runner(env, group) as runner:
        for _ in range(rounds):
            writer.send([record for _ in range(cuts.randint(1, 30)) for record in history.step()])
            while runner.run_once(max_records=cuts.choice(sizes)):
                pass
            assert_views_as_expected(env, history)
    verdicts = verify(env, group)
    assert all(verdict.equal and verdict.rows for verdict in verdicts.values())
    rebuild(env, group)
    assert_views_as_expected(env, history)


def test_a_topic_that_is_deleted_stops_the_run_and_so_does_a_longer_one_of_its_name(road):
    env, writer, group = road
    history, settings = TicketHistory(writer, 8), env.log.settings
    writer.send([record for _ in range(30) for record in history.step()])
    rebuild(env, group)
    before, admin = view_rows(env, "ticket_left"), AdminClient(settings.kafka.librdkafka())
    with open_runner(env, group) as runner:
        admin.delete_topics([writer.events_topic])[writer.events_topic].result(30)
        with pytest.raises(TopicMissing, match=writer.events_topic):
            wait_until(lambda: runner.run_once() is None and False, what="that it is told")
        ensure_topics(settings, [event_topic(writer.events_topic, partitions=PARTITIONS)])
        writer.send([record for _ in range(90) for record in history.step()])
        with pytest.raises(OffsetsLost, match="deleted and created again"):
            runner.run_once()
    assert view_rows(env, "ticket_left") == before


@first_of("rows_travel", "by the driver", "by executors")
def test_records_that_expire_before_a_running_run_has_read_them_stop_it(road, rows_travel):
    env, writer, group = road
    history, settings = TicketHistory(writer, 9), env.log.settings
    writer.send([record for _ in range(30) for record in history.step()])
    rebuild(env, group)
    before = view_rows(env, "ticket_left")
    with open_runner(env, group) as runner:
        writer.send([record for _ in range(30) for record in history.step()])
        for topic in group.topics:
            limit_retention(settings, topic, retention_ms=86_400_000)
        ends = end_offsets(settings, group.topics)
        expire(settings, [TopicPartition(t, p, end) for t, parts in ends.items() for p, end in parts.items()])
        with pytest.raises(OffsetsLost):
            runner.catch_up()
    assert view_rows(env, "ticket_left") == before
