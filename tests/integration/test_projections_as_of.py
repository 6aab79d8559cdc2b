"""Stream-table views, live: whatever arrives first, they equal a rebuild and the look-up in plain Python."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
import sqlalchemy as sa

from cdc import apply
from eventstore.kafka.admin import cleanup_policies
from projections import ProjectionGroup, Table, open_runner, rebuild, verify
from projections.errors import HistoryNotRetained, UndecodableRecord
from projections.spark import exchange
from projections.stores import facts
from tests.integration.log_writer import LogWriter
from tests.integration.payment_history import PaymentHistory, micros, moment
from tests.integration.payments import CUSTOMERS, Payment, payment_group, received, risk_view

UNAVAILABLE = "__debezium_unavailable_value"


@pytest.fixture
def road(environment):
    env = environment()
    return env, LogWriter(env.log.settings, Payment, CUSTOMERS, history=["customers"])


def risk_group(writer, *, how="left", customers_topic=None):
    """One view: payments with their score."""
    versions = Table.versions_of(CUSTOMERS, topic=customers_topic or writer.changes_topics["customers"])
    name = f"risk_{writer.events_topic.rpartition('.')[2]}"
    return ProjectionGroup(name, [risk_view(received(writer.events_topic), versions, how=how)])


def paid(writer, identity, minute, *, key=1, version=None):
    event = Payment.Received(customer_id=key, amount=Decimal(1), paid_at=moment(minute))
    return writer.event(identity, event, version=version)


def customer(writer, op, score, minute, *, key=1, note=None, **options):
    row = {"id": key, "credit_score": score, "note": note}
    return writer.change("customers", op, row, ts_us=micros(minute), **options)


def view_rows(env, name):
    with env.store.transaction() as connection:
        found = connection.execute(sa.text(f"SELECT * FROM {name}"))
        return {row[0]: tuple(row[1:]) for row in found}


def scores(env):
    return {payment: row[1] for payment, row in view_rows(env, "payment_risk").items()}


def assert_views_as_expected(env, history):
    for name, rows in history.expected().items():
        assert view_rows(env, name) == rows


def test_live_views_equal_the_look_up_after_every_batch_in_whatever_order_topics_arrive(road):
    env, writer = road
    group, history = payment_group(writer), PaymentHistory(writer, 1)
    writer.send(history.take(15))
    rebuild(env, group)
    assert_views_as_expected(env, history)
    with open_runner(env, group) as runner:
        for most in (1_000, 12, 1_000):
            writer.send(history.take(20))
            while runner.run_once(max_records=most):
                pass
            assert_views_as_expected(env, history)
    verdicts = verify(env, group)
    assert all(verdict.equal and verdict.rows for verdict in verdicts.values())


def test_the_row_of_a_deleted_stream_goes_and_no_repetition_brings_it_back(road):
    env, writer = road
    group = risk_group(writer)
    payment = paid(writer, "p1", 3)
    writer.send([customer(writer, "c", 500, 1), payment, paid(writer, "p2", 4)])
    rebuild(env, group)
    assert set(scores(env)) == {"p1", "p2"}
    with open_runner(env, group) as runner:
        writer.send(writer.deletion("p1"))
        runner.catch_up()
        assert set(scores(env)) == {"p2"}
        writer.send([payment, paid(writer, "p3", 5), *writer.deletion("p3")])
        runner.catch_up()
        assert set(scores(env)) == {"p2"}
    assert all(verdict.equal for verdict in verify(env, group).values())
    rebuild(env, group)
    assert set(scores(env)) == {"p2"}


@pytest.mark.faults
def test_a_large_batch_and_a_rebuild_give_what_a_small_one_does(road, monkeypatch):
    env, writer = road
    monkeypatch.setattr(exchange, "DRIVER_ROWS", 3)
    group, history = payment_group(writer), PaymentHistory(writer, 2)
    writer.send(history.take(25))
    rebuild(env, group)
    with open_runner(env, group) as runner:
        writer.send(history.take(50))
        runner.run_once()
    assert_views_as_expected(env, history)
    rebuild(env, group)
    assert_views_as_expected(env, history)


def test_a_change_reaches_the_payments_that_were_not_before_it_and_no_others(road, monkeypatch):
    env, writer = road
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
        monkeypatch.setattr(facts, "VALID_FROM", "_epoch")  # the planted fault: every change is as old as 1970
        writer.send([customer(writer, "u", 600, 9)])
        assert sum(report.affected for report in runner.catch_up()) == 9
    after = {f"p{m}": 700 if m >= 6 else 500 for m in range(1, 9)}
    assert scores(env) == after | {"new": 600, "early": None, "first": 400}


def test_a_second_event_of_a_payment_stops_the_run_and_nothing_is_lost(road):
    env, writer = road
    group = risk_group(writer)
    writer.send([customer(writer, "c", 500, 1), paid(writer, "p", 2)])
    rebuild(env, group)
    with open_runner(env, group) as runner:
        writer.send([paid(writer, "p", 2, version=0)])
        runner.catch_up()
        writer.send([paid(writer, "p", 3, version=1)])
        with pytest.raises(UndecodableRecord, match="p has two of the stream's events") as caught:
            runner.run_once()
    assert "Stream.from_events(…, key='…', id='…')" in caught.value.remedy
    assert scores(env) == {"p": 500}


def test_a_first_version_that_lacks_a_value_stops_the_run_until_it_is_sent(road):
    env, writer = road
    group = risk_group(writer)
    rebuild(env, group)
    with open_runner(env, group) as runner:
        writer.send([paid(writer, "p", 5), customer(writer, "u", 600, 3, note=UNAVAILABLE)])
        with pytest.raises(UndecodableRecord, match="the value of note is unavailable"):
            runner.run_once()
        writer.send([customer(writer, "r", 500, 1, note="long", snapshot=True)])
        runner.catch_up()
    assert view_rows(env, "payment_risk") == {"p": (Decimal(1), 600, "long")}


def test_versions_of_a_compacted_topic_are_refused(road):
    env, writer = road
    compacted = LogWriter(env.log.settings, Payment, CUSTOMERS).changes_topics["customers"]
    group = risk_group(writer, customers_topic=compacted)
    with pytest.raises(HistoryNotRetained, match=r"cleanup\.policy=compact") as caught:
        rebuild(env, group)
    assert "PostgresSource(history=" in caught.value.remedy
    assert compacted in caught.value.place
    with pytest.raises(HistoryNotRetained), open_runner(env, group):
        pass
    kept = writer.changes_topics["customers"]
    assert cleanup_policies(env.log.settings, [kept]) == {kept: "delete"}


def test_versions_of_a_captured_table_are_valid_from_the_commit_of_their_transaction(
    road, captured, connect, records_of
):
    env, writer = road
    shop = captured()
    CUSTOMERS.create(shop.engine)
    shop.run("INSERT INTO customers VALUES (1, 500)")
    table = ("public.customers",)
    source = shop.prepared(shop.source(tables=table, history=table))
    apply(connect, source, source=shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(CUSTOMERS.update().values(credit_score=600))
        open_at = connection.scalar(sa.select(sa.func.clock_timestamp()))
    with shop.engine.begin() as connection:
        committed_at = connection.scalar(sa.select(sa.func.clock_timestamp()))
    records_of(source.topic(*table), count=2)
    times = {"before all": moment(0), "transaction open": open_at, "committed": committed_at}
    writer.send([
        writer.event(name, Payment.Received(customer_id=1, amount=Decimal(1), paid_at=time))
        for name, time in times.items()
    ])  # fmt: skip
    rebuild(env, risk_group(writer, customers_topic=source.topic(*table)))
    assert scores(env) == {"before all": 500, "transaction open": 500, "committed": 600}


def test_every_change_of_a_row_within_one_transaction_is_a_version_of_its_own(road, captured, connect, records_of):
    env, writer = road
    shop = captured()
    CUSTOMERS.create(shop.engine)
    table = ("public.customers",)
    source = shop.prepared(shop.source(tables=table, history=table))
    apply(connect, source, source=shop.engine)
    shop.run(
        "INSERT INTO customers VALUES (3, 30), (2, 20), (1, 10)",
        "UPDATE customers SET id = id + 1",
        "UPDATE customers SET credit_score = 21 WHERE id = 3",
        "UPDATE customers SET credit_score = 22 WHERE id = 3",
        "DELETE FROM customers WHERE id = 4",
        "INSERT INTO customers VALUES (4, 40)",
    )
    found = records_of(source.topic(*table), count=17)
    changes = [(record.key, json.loads(record.value)["source"]["lsn"]) for record in found if record.value]
    assert len(set(changes)) == len(changes) == 13
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    writer.send([
        writer.event(f"of {number}", Payment.Received(customer_id=number, amount=Decimal(1), paid_at=later))
        for number in range(1, 5)
    ])  # fmt: skip
    rebuild(env, risk_group(writer, customers_topic=source.topic(*table)))
    assert scores(env) == {"of 1": None, "of 2": 10, "of 3": 22, "of 4": 40}
