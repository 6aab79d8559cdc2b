"""Histories: every version with its times, live as rebuilt, and the rows as of a time."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import closing
from datetime import datetime
from decimal import Decimal

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from eventstore.event_types import event_type_of
from factfold.cli.entry import application
from projections import Environment, ProjectionGroup, open_runner, rebuild, rows_as_of, verify
from projections.errors import EventsMissing, InvalidDefinition, UndecodableRecord
from projections.lifecycle import building
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores import dialects
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from tests.conformance.history_views import (
    ALL,
    MINUTE,
    PRICES,
    REGISTRY,
    Ledger,
    at,
    change_of,
    expected,
    minutes,
    payment_history,
    price_history,
    random_change,
    recent_prices,
    stored,
    write,
)
from tests.errors import refused
from tests.integration.payments import Payment


@pytest.fixture
def ledger(spark, store):
    return Ledger(spark, store)


class Payments:
    """Random payments: events that set columns, set them to null, come twice; streams that are deleted in parts."""

    def __init__(self, ledger, chance):
        self._ledger, self._chance, self._events, self._left = ledger, chance, {}, {}

    def live_on(self):
        chance, payment = self._chance, self._chance.choice("pqrs")
        if payment in self._left:
            self._delete(payment)
            return
        events = self._events.setdefault(payment, [])
        if events and chance.random() < 0.15:
            self._left[payment] = chance.sample(range(len(events)), len(events))
            self._delete(payment)
        elif events and chance.random() < 0.15:
            version = chance.randrange(len(events))
            self._ledger.record(payment, version, *events[version])
        else:
            events.append((self._event(), chance.randrange(6)))
            self._ledger.record(payment, len(events) - 1, *events[-1])

    def _delete(self, payment):
        if self._left[payment]:
            self._ledger.record(payment, self._left[payment].pop(), None, 9)

    def _event(self):
        if self._chance.random() < 0.5:
            return Payment.Refused(reason=self._chance.choice(["no funds", "no card"]))
        amount, customer = Decimal(self._chance.randrange(3)), self._chance.choice([None, 1, 2])
        return Payment.Received(customer_id=customer, amount=amount, paid_at=None)


@pytest.mark.postgres_in_faults
def test_spark_keeps_histories_as_it_would_rebuild_them(ledger, spark, tmp_path, monkeypatch):
    chance = random.Random(5)
    lsn, lives = itertools.count(1_000, 10), Payments(ledger, chance)
    with open_runner(ledger.environment, ALL) as runner:
        for number in range(5):
            for _ in range(8):
                write(ledger.log, random_change(chance, next(lsn)))
                lives.live_on()
            runner.catch_up()
            ledger.check(f"batch {number}")
    assert {name for name, verdict in verify(ledger.environment, ALL).items() if not verdict.equal} == set()
    assert any(value is None for _, value in ledger.log.records("payment"))
    with closing(SqliteTableStore(tmp_path / "again.db")) as store:
        store.prepare()
        again = Environment(spark, small_batch_session(spark), store, ledger.log)
        monkeypatch.setattr(building, "CHUNK_RECORDS", 30)
        rebuild(again, ALL)
        assert stored(store, store.serving(ALL, view_columns(spark, ALL))[1], ledger.rows()) == ledger.expected()


def test_events_of_a_deleted_stream_lose_their_values_at_the_horizon_and_stay_deleted(ledger):
    event = Payment.Refused(reason="no card")
    ledger.record("p", 0, event, 1)
    ledger.record("p", 0, None, 2)
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    run = ledger.store.claim(ledger.store.serving_state(ALL.name).run)
    assert ledger.store.let_go(run, ledger.layout, before=1 << 40, most=10) == {"payment_history_versions": 1}
    assert ledger.store.let_go(run, ledger.layout, before=1 << 40, most=10) == {}
    ledger.record("p", 0, event, 1)
    ledger.record("q", 0, event, 1)
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    state = ledger.layout.tables["payment_history_versions"].state
    with ledger.store.transaction() as connection:
        kept = dict(connection.execute(sa.select(state.c["payment_id"], state.c["reason"])).all())
    assert kept == {"p": None, "q": "no card"}
    ledger.check("the event came again")


TOLERANT = ProjectionGroup("tolerant", [payment_history], bad_records="skip")


def test_what_stands_behind_a_bad_event_is_set_aside_with_it(spark, store):
    environment = Environment(spark, small_batch_session(spark), store, MemoryLog(REGISTRY))
    rebuild(environment, TOLERANT)

    def record(version, event, *, minute=None):
        value = event if isinstance(event, bytes) else event_type_of(event).encode(event)
        environment.log.append("payment", f"payment-p@{version}".encode(), value, time=minute and minutes(minute))

    with open_runner(environment, TOLERANT) as runner:
        record(0, Payment.Received(customer_id=1, amount=Decimal(1), paid_at=None), minute=1)
        record(1, b"nonsense", minute=2)
        record(2, Payment.Refused(reason="no card"), minute=3)
        report = runner.run_once(max_records=10)
        record(3, Payment.Refused(reason="no funds"), minute=4)
        later = runner.run_once(max_records=10)
    assert report.set_aside == {"not_avro": 1, "behind_a_gap": 1}
    assert later.set_aside == {"behind_a_gap": 1}
    (row,) = rows_as_of(store, TOLERANT, payment_history, minutes(9)).to_pylist()
    assert (row["reason"], row["is_current"]) == ("", True)
    assert verify(environment, TOLERANT)["payment_history"].equal


def test_an_event_without_a_time_and_a_gap_stop_a_run_that_tolerates_nothing(ledger):
    with open_runner(ledger.environment, ALL) as runner:
        ledger.record("p", 0, Payment.Refused(reason="no card"), 1)
        ledger.record("p", 2, Payment.Refused(reason="no funds"), 2)
        with pytest.raises(EventsMissing, match="before version 2 of payment-p"):
            runner.catch_up()
        ledger.record("p", 1, Payment.Refused(reason="no funds"), 2)
        runner.catch_up()
        ledger.check("the missing event came")
        refused = Payment.Refused(reason="no card")
        ledger.log.append("payment", b"payment-q@0", event_type_of(refused).encode(refused))
        with pytest.raises(UndecodableRecord, match="header ce_time is missing"):
            runner.catch_up()


# ---- rows as of a time


@pytest.mark.postgres_in_faults
def test_the_rows_as_of_any_time_are_those_that_were_valid_then(ledger):
    chance = random.Random(2)
    for lsn in range(1_000, 1_300, 10):
        write(ledger.log, random_change(chance, lsn))
    ledger.record("p", 0, Payment.Received(customer_id=1, amount=Decimal("1.5"), paid_at=None), 1)
    ledger.record("p", 1, Payment.Refused(reason="no card"), 3)
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    rows = expected(ledger.log)["price_history"]
    for minute in range(-1, 9):
        found = rows_as_of(ledger.store, ALL, price_history, minutes(minute))
        assert [{c: row[c] for c in PRICES.columns.keys()} for row in found.to_pylist()] == at(rows, minute * MINUTE)
    (paid,) = rows_as_of(ledger.store, ALL, "payment_history", minutes(2)).to_pylist()
    assert paid == {
        "payment_id": "p", "amount": Decimal("1.5000"), "customer": 1, "reason": "", "valid_from": minutes(1),
        "valid_to": minutes(3), "is_current": False,
    }  # fmt: skip
    assert rows_as_of(ledger.store, ALL, "payment_history", minutes(0)).num_rows == 0


@pytest.mark.parametrize(
    ("view", "moment", "words"),
    [
        ("recent_prices", minutes(1), "keeps versions for 0:02:00, and 1970-01-01T00:01:00+00:00 is longer before now"),
        ("price_history", datetime(2026, 1, 1), "has no time zone"),
        ("prices", minutes(1), "serves no history 'prices'"),
    ],
)
def test_a_time_for_which_no_history_answers_is_refused(ledger, view, moment, words):
    refused(lambda: rows_as_of(ledger.store, ALL, view, moment), words)


def test_what_is_kept_is_there_for_all_times_within_keep_before_now(ledger, monkeypatch):
    write(ledger.log, change_of(1, at=0))
    write(ledger.log, change_of(2, at=1))
    write(ledger.log, change_of(3, at=4))
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    monkeypatch.setattr(dialects, "now", lambda connection: 5 * MINUTE)
    found = [rows_as_of(ledger.store, ALL, recent_prices, minutes(minute))["price"].to_pylist() for minute in (3, 4, 5)]
    assert found == [[2], [3], [3]]
    with pytest.raises(InvalidDefinition, match="is longer before now"):
        rows_as_of(ledger.store, ALL, recent_prices, minutes(2))
    monkeypatch.setattr(dialects, "now", lambda connection: 3 * MINUTE)  # the change of minute 4 is of a clock ahead
    with pytest.raises(InvalidDefinition, match="before a change whose time is still to come"):
        rows_as_of(ledger.store, ALL, recent_prices, minutes(1))


def test_the_command_line_shows_the_rows_as_of_a_time(ledger):
    write(ledger.log, change_of(7, at=2))
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()

    def told(*words):
        given = [
            "projections",
            "as-of",
            "tests.conformance.history_views:ALL",
            *words,
            "--views-url",
            f"sqlite:///{ledger.store.path}",
        ]
        return CliRunner().invoke(application(), given)

    (row,) = json.loads(told("price_history", "--at", "1970-01-01T00:02:00Z", "--json").output)
    assert row == {
        "shop": 1, "sku": "a", "price": 7, "valid_from": "1970-01-01T00:02:00+00:00", "valid_to": None,
        "is_current": True,
    }  # fmt: skip
    assert told("price_history", "--at", "1970-01-01T00:01:59Z").output == ""
    assert "price=7" in told("price_history", "--at", "1970-01-01T00:02:01Z").output
    assert "'soon' is no time" in str(told("price_history", "--at", "soon").exception)
