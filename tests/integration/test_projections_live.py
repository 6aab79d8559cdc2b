"""Live = rebuild = independent oracle, over random histories cut into random batches, on real Kafka and PostgreSQL."""

from __future__ import annotations

import random

import pytest
import sqlalchemy as sa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore.errors import TopicMissing
from eventstore.kafka.admin import end_offsets, ensure_topics
from eventstore.kafka.topic_settings import limit_retention
from eventstore.topics import event_topic
from projections import open_runner, rebuild, verify
from projections.errors import OffsetsLost, RunAlreadyActive, RunSuperseded, StagingLost
from projections.spark import exchange
from projections.spark.live import incremental
from projections.stores import commit, dialects
from projections.stores.sqlite import SqliteTableStore
from tests.integration.log_writer import PARTITIONS, LogWriter
from tests.integration.test_archive import expire
from tests.integration.ticket_history import TicketHistory, assert_views_as_expected, view_rows
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group
from tests.tiers import first_of
from tests.waiting import wait_until


@pytest.fixture
def views(request, tmp_path):
    """The table store, None for an empty PostgreSQL database."""
    return SqliteTableStore(tmp_path / "views.db") if getattr(request, "param", None) == "SQLite" else None


@pytest.fixture
def road(environment, views):
    env = environment(views)
    writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
    return env, writer, ticket_group(writer)


@pytest.fixture
def rows_travel(request, monkeypatch):
    """Small sets go through the driver; with a bound of 3 rows everything takes the way of large sets."""
    if request.param == "by executors":
        monkeypatch.setattr(exchange, "DRIVER_ROWS", 3)
    return request.param


@pytest.mark.parametrize(
    ("rows_travel", "views"),
    [
        ("by executors", "PostgreSQL"),
        pytest.param("by the driver", "PostgreSQL", marks=pytest.mark.faults),
        pytest.param("by executors", "SQLite", marks=pytest.mark.faults),
    ],
    indirect=True,
)
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


def test_a_run_that_fails_before_its_commit_leaves_views_and_progress_and_is_repeated(road, monkeypatch):
    env, writer, group = road
    history = TicketHistory(writer, 3)
    writer.send([record for _ in range(30) for record in history.step()])
    rebuild(env, group)
    before = view_rows(env, "ticket_left")
    merged = commit._merge_view

    def crash(connection, layout):
        merged(connection, layout)
        raise KeyboardInterrupt

    writer.send([record for _ in range(30) for record in history.step()])
    with monkeypatch.context() as patched, open_runner(env, group) as runner:
        patched.setattr(commit, "_merge_view", crash)
        with pytest.raises(KeyboardInterrupt):
            runner.run_once()
    assert view_rows(env, "ticket_left") == before
    with open_runner(env, group) as runner:
        runner.catch_up()
    assert_views_as_expected(env, history)


def test_a_batch_whose_staging_tables_were_emptied_before_its_commit_writes_nothing(road, monkeypatch):
    env, writer, group = road
    history = TicketHistory(writer, 7)
    writer.send([record for _ in range(30) for record in history.step()])
    rebuild(env, group)
    before = view_rows(env, "ticket_left")
    writer.send([record for _ in range(30) for record in history.step()])

    def crash_of_the_server(connection, layout, *arguments, **options):
        """What crash recovery does: every UNLOGGED table is empty afterwards."""
        dialects.empty(connection, layout.working_tables())
        commit_batch(connection, layout, *arguments, **options)

    commit_batch = incremental.commit_batch
    with monkeypatch.context() as patched, open_runner(env, group) as runner:
        patched.setattr(incremental, "commit_batch", crash_of_the_server)
        with pytest.raises(StagingLost, match="are missing"):
            runner.run_once()
    assert view_rows(env, "ticket_left") == before
    with open_runner(env, group) as runner:
        runner.catch_up()
    assert_views_as_expected(env, history)


def test_a_topic_that_is_shorter_than_what_was_applied_stops_the_run(road):
    env, writer, group = road
    history = TicketHistory(writer, 8)
    writer.send([record for _ in range(30) for record in history.step()])
    rebuild(env, group)
    with open_runner(env, group) as runner:
        runner.progress = {t: {p: o + 1_000 for p, o in parts.items()} for t, parts in runner.progress.items()}
        with pytest.raises(OffsetsLost, match="created again"):
            runner.run_once()


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


def test_verify_finds_a_row_that_was_changed_behind_its_back(road):
    env, writer, group = road
    history = TicketHistory(writer, 4)
    writer.send([record for _ in range(30) for record in history.step()])
    rebuild(env, group)
    wrong = sorted(history.tickets)[0]
    with env.store.transaction() as connection:
        schema = f"factfold_{group.name}_1"
        connection.execute(
            sa.text(f"UPDATE {schema}.view_ticket_left SET status = 'forged' WHERE ticket_id = :id"), {"id": wrong}
        )
    verdict = verify(env, group)["ticket_left"]
    assert not verdict.equal
    assert verdict.differing_keys == (wrong,)
    assert verdict.digest != verdict.recomputed_digest


def test_grants_on_a_view_outlive_a_rebuild(road):
    env, _, group = road
    rebuild(env, group)
    reader = f"reader_{group.name}"
    with env.store.transaction() as connection:
        connection.execute(sa.text(f"CREATE ROLE {reader}"))
        connection.execute(sa.text(f"GRANT SELECT ON ticket_left TO {reader}"))
    rebuild(env, group)
    with env.store.transaction() as connection:
        connection.execute(sa.text(f"SET LOCAL ROLE {reader}"))
        assert connection.scalar(sa.text("SELECT count(*) FROM ticket_left")) == 0


def test_a_second_runner_of_a_group_is_refused_while_the_first_goes_on(road):
    env, writer, group = road
    history = TicketHistory(writer, 5)
    writer.send(history.step())
    rebuild(env, group)
    with open_runner(env, group) as first:
        with pytest.raises(RunAlreadyActive, match="another runner holds"):
            with open_runner(env, group):
                pass
        writer.send([record for _ in range(10) for record in history.step()])
        first.catch_up()
    assert_views_as_expected(env, history)


def test_a_runner_that_lost_its_lock_cannot_write_once_another_has_claimed_the_run(road):
    env, writer, group = road
    history = TicketHistory(writer, 6)
    writer.send([record for _ in range(10) for record in history.step()])
    rebuild(env, group)
    with open_runner(env, group) as zombie:
        run, _ = env.store.serving(group, _columns(env, group))
        env.store.claim(run)
        before = view_rows(env, "ticket_left")
        writer.send([record for _ in range(10) for record in history.step()])
        with pytest.raises(RunSuperseded):
            zombie.run_once()
    assert view_rows(env, "ticket_left") == before


def _columns(env, group):
    from projections.spark.views.view_functions import view_columns

    return view_columns(env.spark, group)
