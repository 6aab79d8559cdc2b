"""Stream-table views on servers: versions of a captured table, and which rows of a view a change reaches."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
import sqlalchemy as sa

from cdc import apply_connector
from projections import ProjectionGroup, Table, open_runner, rebuild
from projections.errors import ProjectionError
from projections.stores import staging
from tests.errors import raises
from tests.integration.log_writer import LogWriter
from tests.integration.payments import CUSTOMERS, Payment, micros, moment, received, risk_view


@pytest.fixture
def road(environment):
    env = environment()
    return env, LogWriter(env.log.settings, Payment, CUSTOMERS, history=["customers"])


def risk_group(writer, *, customers_topic=None):
    """One view: payments with their score."""
    versions = Table.versions_of(CUSTOMERS, topic=customers_topic or writer.changes_topics["customers"])
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
        monkeypatch.setattr(staging, "VALID_FROM", "_epoch")  # the planted fault: every change is as old as 1970
        writer.send([customer(writer, "u", 600, 9)])
        assert sum(report.affected for report in runner.catch_up()) == 9
    after = {f"p{m}": 700 if m >= 6 else 500 for m in range(1, 9)}
    assert scores(env) == after | {"new": 600, "early": None, "first": 400}


def test_versions_of_a_compacted_topic_are_refused(road):
    env, writer = road
    compacted = LogWriter(env.log.settings, Payment, CUSTOMERS).changes_topics["customers"]
    group = risk_group(writer, customers_topic=compacted)
    with raises(ProjectionError, code="history-not-retained", match=r"cleanup\.policy=compact") as caught:
        rebuild(env, group)
    assert "PostgresSource(history=" in caught.value.remedy
    with raises(ProjectionError, code="history-not-retained"), open_runner(env, group):
        pass


def test_versions_of_a_captured_table_are_all_changes_and_valid_from_the_commit_of_their_transaction(
    road, captured, connect, records_of
):
    env, writer = road
    shop, table = captured(), ("public.customers",)
    CUSTOMERS.create(shop.engine)
    shop.run("INSERT INTO customers VALUES (9, 500)")
    source = shop.prepared(shop.source(tables=table, history=table))
    apply_connector(connect, source, source=shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(CUSTOMERS.update().values(credit_score=600))
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
