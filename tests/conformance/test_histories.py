"""Histories: every version with its times, after any changes in any order, cut and killed anywhere, live as rebuilt.

Held against plain Python that goes through the changes of a row one by one.
"""

from __future__ import annotations

import itertools
import json
import random
from contextlib import closing
from decimal import Decimal

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from eventstore.event_types import event_type_of
from projections import Environment, ProjectionGroup, open_runner, rebuild, rows_as_of, verify
from projections.declaring.event_versions import FROM
from projections.declaring.tables import BELOW_STREAMED
from projections.errors import EventsMissing, UndecodableRecord
from projections.lifecycle import building
from projections.spark.session import small_batch_session
from projections.spark.views import frames
from projections.spark.views.view_functions import view_columns
from projections.stores import affected
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from tests.conformance.history_ledger import (
    ALL,
    GROUP,
    REGISTRY,
    Ledger,
    expected,
    minutes,
    payment_history,
    price_history,
    prices,
    random_change,
    stored,
    write,
)
from tests.conformance.history_oracle import MINUTE
from tests.conformance.killed_batches import (
    EXAMPLES,
    carry_in,
    drawn_batches,
    few,
    in_a_file,
    in_postgresql,
    some,
    until_a_fault_shows,
)
from tests.conformance.relational_batches import RelationalBatches
from tests.integration.payments import Payment
from tests.tiers import first_of

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
SOME = some(12)


def valid_over(slice, named):
    """A history in DuckDB's SQL, over the versions of whole keys."""
    return f"""
        WITH timed AS (
            SELECT *, CASE WHEN _pos < 0 AND row_number() OVER earlier = 1 THEN NULL ELSE _valid_from END AS a,
                min(_valid_from) OVER (earlier ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS b
            FROM {slice} WINDOW earlier AS (PARTITION BY shop, sku ORDER BY _epoch, _pos)),
        lasting AS (SELECT * FROM timed WHERE NOT _deleted AND (a IS NULL OR b IS NULL OR a < b)),
        measured AS (SELECT *, max(greatest(a, b)) OVER (PARTITION BY shop, sku) AS newest FROM lasting)
        SELECT shop, sku, price, make_timestamp(a)::TIMESTAMPTZ AS {named}_from, make_timestamp(b)::TIMESTAMPTZ
            AS {named}_to, b IS NULL AS is_current
        FROM measured"""


SQL = {
    "price_history": valid_over("price_history_versions", "valid"),
    "recent_prices": valid_over("recent_prices_versions", "known") + f" WHERE b IS NULL OR b + {2 * MINUTE} >= newest",
}


class RelationalHistories(RelationalBatches):
    """Stages versions instead of the newest row of each key."""

    def _stage(self, tables, since):
        import pyarrow as pa

        from projections.stores import staging

        found = {}
        for offset, (key, value) in enumerate(self._log.records(tables.table.topic)[since:], since):
            if value is not None:
                row = version(key, json.loads(value), offset)
                found.setdefault((key, row["_pos"]), row)
        if found:
            target = self._store.target(tables.staged)
            columns = {**tables.table.stored, **POSITION}
            schema = pa.schema([(name, column.arrow()) for name, column in columns.items()])
            target.append(pa.Table.from_pylist(list(found.values()), schema))
        with self._store.staging(self._run) as connection:
            staging.complete(connection, tables)


def version(key, change, offset):
    source = change["source"]
    pos = source["lsn"] - (0 if source["snapshot"] == "false" else BELOW_STREAMED)
    place = {"_epoch": 0, "_pos": pos, "_offset": offset, "_deleted": change["op"] == "d"}
    return {**(change["after"] or {}), **json.loads(key), "_valid_from": source["ts_us"], "_unset": None, **place}


POSITION = {c: prices.columns["price"] for c in ("_epoch", "_pos", "_offset")} | {
    "_deleted": price_history.table("price_history_versions").sliced["_deleted"]
}


@st.composite
def lives(draw):
    """Batches of changes of a few rows: snapshots, deletions, late and repeated ones, commits of one time, kills."""
    lsn = itertools.count(1_000, 10)

    def change():
        place = next(lsn) - draw(st.sampled_from([0, 0, 0, 23, 46]))
        return {
            "shop": draw(st.integers(1, 2)), "sku": draw(st.sampled_from(["a", "b"])), "lsn": place,
            "price": draw(st.none() | st.integers(1, 3)), "minute": draw(st.integers(0, 6)),
            "snapshot": draw(st.integers(0, 5)) == 0, "times": draw(st.integers(1, 2)),
        }  # fmt: skip

    return drawn_batches(draw, change, batches=7)


def live_through(store, life, columns):
    log = MemoryLog()
    batches = RelationalHistories(store, log, GROUP, SQL, columns)

    def written(batch):
        for change in batch.changes:
            write(log, change)

    def check(*, after):
        right, found = expected(log), stored(store, batches._layout, SQL)
        wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
        assert not wrong, f"after {after}: {wrong}"

    carry_in(batches, life, written, check)


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(small_batch_session(spark), GROUP)


def lived(folder, life, columns):
    with in_a_file(folder) as store:
        live_through(store, life, columns)


@given(life=lives())
@SOME
def test_a_history_is_right_after_any_batch(columns, tmp_path, life):
    lived(tmp_path, life, columns)


@given(life=lives())
@few(SOME)
def test_a_history_is_right_in_postgresql_too(columns, database, life):
    with in_postgresql(database()) as store:
        live_through(store, life, columns)


def _as_rows_are_replaced(role, by, destroyed):
    return [query.where(sa.not_(role.staged.c["_deleted"])) for query in _PARTITIONS(role, by, destroyed)]


_PARTITIONS = affected._partitions
FAULTS = {"a deletion reaches no version": (affected, "_partitions", _as_rows_are_replaced)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_histories_shows(fault, columns, tmp_path, monkeypatch):
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        until_a_fault_shows(lambda life: lived(tmp_path, life, columns), lives(), SOME)


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


@first_of("store", "SQLite", "PostgreSQL")
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


def _with_nulls_as_unset(rows, table):
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    so_far = Window.partitionBy(*table.key).orderBy("_pos")
    found = STATES(rows, table)
    numbered = found.withColumn("_pos", F.row_number().over(Window.partitionBy(*table.key).orderBy(FROM)))
    filled = {c: F.last(c, ignorenulls=True).over(so_far) for c in table.payload}
    return numbered.withColumns(filled).drop("_pos")


def _with_deleted_streams(rows, table):
    from pyspark.sql import functions as F

    return STATES(rows.where("NOT _deleted").withColumn("_deleted", F.lit(False)), table)


STATES = frames.with_states
PLANTED = {
    "null keeps the value before": _with_nulls_as_unset,
    "a part of a deleted stream stays": _with_deleted_streams,
}


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_the_histories_of_events_shows(spark, store, fault, monkeypatch):
    monkeypatch.setattr(frames, "with_states", PLANTED[fault])
    ledger = Ledger(spark, store)
    first, second = (Payment.Received(customer_id=c, amount=Decimal(1), paid_at=None) for c in (1, None))
    ledger.record("p", 0, first, 1)
    ledger.record("p", 1, second, 2)
    ledger.record("q", 0, first, 1)
    ledger.record("q", 1, first, 2)
    ledger.record("q", 1, None, 3)
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    with pytest.raises(AssertionError, match="after the payments"):
        ledger.check("the payments")


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
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


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
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


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
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
