"""Live = rebuild = independent oracle, over random histories cut into random batches, on real Kafka and PostgreSQL."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal

import pytest
import sqlalchemy as sa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cdc import apply_connector
from eventstore import Restarts
from eventstore.errors import TopicMissing
from eventstore.kafka.admin import end_offsets, ensure_topics, limit_retention
from eventstore.topics import event_topic
from projections import ProjectionGroup, Table, open_runner, read_view, rebuild, verify, view_changes
from projections.errors import OffsetsLost, ProjectionError
from projections.spark import exchange
from projections.stores import staging
from tests.errors import raises
from tests.integration.following import followed
from tests.integration.log_writer import PARTITIONS, LogWriter
from tests.integration.payments import CUSTOMERS as BUYERS
from tests.integration.payments import Payment, micros, moment, received, risk_view
from tests.integration.test_archive import expire
from tests.integration.ticket_history import TicketHistory, assert_views_as_expected, rebuilt_tickets, view_rows
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
            past = runner.progress, dt.datetime.now(dt.UTC), view_rows(env, "ticket_left")
        writer.send([record for _ in range(20) for record in history.step()])
        runner.catch_up()
    assert_was(env, group, *past)
    verdicts = verify(env, group)
    assert all(verdict.equal and verdict.rows for verdict in verdicts.values())
    rebuild(env, group)
    assert_views_as_expected(env, history)


def assert_was(env, group, progress, moment, rows):
    """The past of a view by offsets and by the time of records, in Arrow and in a table, and what has changed since."""
    for number, at in enumerate(({topic: progress[topic] for topic in group.topics}, moment)):
        found = read_view(env, group, "ticket_left", at=at, into=f"left_then_{number}")
        assert found.num_rows == len(rows)
        assert view_rows(env, f"left_then_{number}") == rows
    changes = view_changes(env, group, "ticket_left", start=moment, end={}, most=3)
    assert changes.rows_before == len(rows)
    assert changes.changed
    assert all(one.records for one in changes.changed)


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


# ---- The views' database is away for a while: the runner outwaits it, and the views are as if it had never been


@pytest.fixture
def switch(stack):
    """A function that lets nobody into a database, or everybody again; who is in it is thrown out."""
    engine = sa.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")

    def turn(name, *, on):
        with engine.connect() as connection:
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {on}')
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
            )

    yield turn
    engine.dispose()


def test_a_store_that_is_down_for_a_while_is_outwaited_and_nothing_is_lost(environment, switch):
    env = environment()
    writer, group, history = rebuilt_tickets(env)
    policy = Restarts(limit=1_000, first=0.1, longest=0.5)
    with followed(env, group, policy=policy) as (follower, goes_on):
        name = env.store._engine.url.database
        switch(name, on=False)
        writer.send([record for _ in range(20) for record in history.step()])
        wait_until(lambda: follower.failures >= 3, alive=goes_on, what="three failures in a row")
        switch(name, on=True)
        wait_until(lambda: view_rows(env, "ticket_left") == history.expected_left(), alive=goes_on, what="the views")
        # Readers see a batch before its runner has come back from it.
        wait_until(lambda: follower.failures == 0, alive=goes_on, what="a batch that counts")


# ---- Stream-table views on servers: versions of a captured table, and which rows of a view a change reaches


@pytest.fixture
def risk_road(environment):
    env = environment()
    return env, LogWriter(env.log.settings, Payment, BUYERS, history=["customers"])


def risk_group(writer, *, customers_topic=None):
    """One view: payments with their score."""
    versions = Table.versions_of(BUYERS, topic=customers_topic or writer.changes_topics["customers"])
    name = f"risk_{writer.events_topic.rpartition('.')[2]}"
    return ProjectionGroup(name, [risk_view(received(writer.events_topic), versions, how="left")])


def paid(writer, identity, at, *, key=1):
    at = moment(at) if isinstance(at, int) else at
    return writer.event(identity, Payment.Received(customer_id=key, amount=Decimal(1), paid_at=at))


def customer(writer, op, score, minute, *, key=1, **options):
    row = {"id": key, "credit_score": score, "note": None}
    return writer.change("customers", op, row, ts_us=micros(minute), **options)


def scores(env):
    with env.store.transaction() as connection:
        return dict(map(tuple, connection.execute(sa.text("SELECT payment_id, credit_score FROM payment_risk"))))


def test_a_change_reaches_the_payments_that_were_not_before_it_and_no_others(risk_road, monkeypatch):
    env, writer = risk_road
    group = risk_group(writer)
    writer.send([customer(writer, "c", 500, 1)] + [paid(writer, f"p{m}", m) for m in range(1, 9)])
    rebuild(env, group)
    steps = [  # what happens, how many payments are looked at, how many of their rows change
        ("a change after every payment", customer(writer, "u", 600, 9), 0, 0),
        ("a change that arrives late", customer(writer, "u", 700, 6), 3, 3),
        ("a payment", paid(writer, "new", 9), 1, 1),
        ("a change to the same", customer(writer, "u", 700, 8), 2, 0),
        ("a payment before its customer is known", paid(writer, "early", 5, key=2), 1, 1),
        ("the customer", customer(writer, "c", 500, 3, key=2), 1, 1),
        ("its deletion, by a clock that was set back", customer(writer, "d", None, 2, key=2), 1, 1),
        ("another payment before its customer", paid(writer, "first", 0, key=3), 1, 1),
        ("his row in a later snapshot", customer(writer, "r", 400, 9, key=3, snapshot=True), 1, 1),
    ]
    with open_runner(env, group) as runner:
        for happening, record, affected, upserts in steps:
            writer.send([record])
            reports = runner.catch_up()
            assert (sum(r.affected for r in reports), sum(r.upserts for r in reports)) == (affected, upserts), happening
        monkeypatch.setattr(staging, "VALID_FROM", "_epoch")  # the planted fault: every change is as old as 1970
        writer.send([customer(writer, "u", 600, 9)])
        assert sum(report.affected for report in runner.catch_up()) == 9
    after = {f"p{m}": 700 if m >= 6 else 500 for m in range(1, 9)}
    assert scores(env) == after | {"new": 600, "early": None, "first": 400}


def test_versions_of_a_compacted_topic_are_refused(risk_road):
    env, writer = risk_road
    compacted = LogWriter(env.log.settings, Payment, BUYERS).changes_topics["customers"]
    group = risk_group(writer, customers_topic=compacted)
    with raises(ProjectionError, code="history-not-retained", match=r"cleanup\.policy=compact") as caught:
        rebuild(env, group)
    assert "PostgresSource(history=" in caught.value.remedy
    with raises(ProjectionError, code="history-not-retained"), open_runner(env, group):
        pass


def test_versions_of_a_captured_table_are_all_changes_and_valid_from_the_commit_of_their_transaction(
    risk_road, captured, connect, records_of
):
    env, writer = risk_road
    shop, table = captured(), ("public.customers",)
    BUYERS.create(shop.engine)
    shop.run("INSERT INTO customers VALUES (9, 500)")
    source = shop.prepared(shop.source(tables=table, history=table))
    apply_connector(connect, source, source=shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(BUYERS.update().values(credit_score=600))
        open_at = connection.scalar(sa.select(sa.func.clock_timestamp()))
    with shop.engine.begin() as connection:
        committed_at = connection.scalar(sa.select(sa.func.clock_timestamp()))
    shop.run(
        "INSERT INTO customers VALUES (3, 30), (2, 20), (1, 10)",
        "UPDATE customers SET id = id + 1 WHERE id < 9",
        "UPDATE customers SET credit_score = 21 WHERE id = 3",
        "UPDATE customers SET credit_score = 22 WHERE id = 3",
        "DELETE FROM customers WHERE id = 4",
        "INSERT INTO customers VALUES (4, 40)",
    )
    found = records_of(source.topic(*table), count=19)
    changes = [(record.key, json.loads(record.value)["source"]["lsn"]) for record in found if record.value]
    assert len(set(changes)) == len(changes) == 15
    times = {"before all": moment(0), "transaction open": open_at, "committed": committed_at}
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    writer.send([paid(writer, name, time, key=9) for name, time in times.items()])
    writer.send([paid(writer, f"of {number}", later, key=number) for number in range(1, 5)])
    rebuild(env, risk_group(writer, customers_topic=source.topic(*table)))
    assert scores(env) == {
        "before all": 500, "transaction open": 500, "committed": 600,
        "of 1": None, "of 2": 10, "of 3": 22, "of 4": 40,
    }  # fmt: skip
