"""Histories: every version with its times, after any changes in any order, cut and killed anywhere, live as rebuilt.

Held against plain Python that goes through the changes of a row one by one.
"""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eventstore.event_types import event_type_of
from projections import Environment, ProjectionGroup, open_runner, rebuild, rows_as_of, verify
from projections.errors import EventsMissing, UndecodableRecord
from projections.lifecycle import building
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from tests.conformance.followed_views import EXAMPLES
from tests.conformance.history_ledger import (
    ALL,
    REGISTRY,
    Ledger,
    minutes,
    payment_history,
    random_change,
    stored,
    write,
)
from tests.integration.payments import Payment

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]


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
