"""Histories: every version with its times, after any changes in any order, cut and killed anywhere, live as rebuilt.

Held against plain Python that goes through the changes of a row one by one.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from eventstore.event_types import event_type_of
from factfold.cli.entry import application
from projections import Environment, ProjectionGroup, Table, history, on, open_runner, rebuild, rows_as_of, verify
from projections.errors import EventsMissing, InvalidDefinition, UndecodableRecord
from projections.spark.exchange import fetched
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.tables import BELOW_STREAMED
from projections.tablestore import affected, finals
from projections.tablestore.postgres import PostgresTableStore
from projections.tablestore.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from tests.conformance.history_oracle import MINUTE, at, event_history_of, history_of, in_order
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.test_generated_views import Killed, killing
from tests.integration.payments import Payment
from tests.tiers import first_of

EXAMPLES = int(os.environ.get("FACTFOLD_EXAMPLES", "0"))
SOME = settings(
    max_examples=EXAMPLES or 12, derandomize=not EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PRICES = sa.Table(
    "prices", sa.MetaData(), sa.Column("shop", sa.BigInteger, primary_key=True),
    sa.Column("sku", sa.Text, primary_key=True), sa.Column("price", sa.BigInteger),
)  # fmt: skip
prices = Table.from_changelog(PRICES, topic="shop.public.prices")
price_history = history("price_history", prices)
recent_prices = history("recent_prices", prices, keep="2 minutes", named="known")
GROUP = ProjectionGroup("histories", [price_history, recent_prices])


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

        from projections.tablestore import staging

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


def write(log, change):
    """A change of one row, as a connector writes it."""
    key = json.dumps({"shop": change["shop"], "sku": change["sku"]}, separators=(",", ":")).encode()
    op = "d" if change["price"] is None else "r" if change["snapshot"] else "u"
    after = None if op == "d" else {c: change[c] for c in ("shop", "sku", "price")}
    source = {
        "lsn": change["lsn"], "snapshot": "true" if op == "r" else "false", "ts_us": change["minute"] * MINUTE,
    }  # fmt: skip
    value = json.dumps({"op": op, "before": None, "after": after, "source": source}).encode()
    for _ in range(change["times"]):
        log.append(prices.topic, key, value)


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

    def batch():
        killed = draw(st.sampled_from([None, None, None, "staged", "kept", "committing", "committed"]))
        return [change() for _ in range(draw(st.integers(1, 6)))], killed

    return [batch() for _ in range(draw(st.integers(3, 7)))]


def expected(log):
    records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(prices.topic))]
    return {"price_history": history_of(records), "recent_prices": history_of(records, keep=2 * MINUTE)}


def stored(store, layout, names):
    return {name: spans(fetched(store.target(layout.views[name].view), layout.views[name].columns)) for name in names}


def spans(rows):
    """Rows of a history as `history_oracle` has them."""
    found = []
    for row in rows.to_pylist():
        assert row.pop("is_current") == (list(row.values())[-1] is None)
        *_, (start, since), (end, until) = row.items()
        values = {c: v for c, v in row.items() if c not in (start, end)}
        found.append(
            (values, *(None if t is None else (t - EPOCH) // timedelta(microseconds=1) for t in (since, until)))
        )
    return in_order(found)


def live_through(store, life, columns):
    log = MemoryLog()
    batches = RelationalHistories(store, log, GROUP, SQL, columns)
    for number, (changes, killed) in enumerate(life):
        for change in changes:
            write(log, change)
        try:
            batches.catch_up(killing(killed))
        except Killed:
            batches.catch_up()
        right, found = expected(log), stored(store, batches._layout, SQL)
        wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
        assert not wrong, f"after batch {number} of {life}: {wrong}"


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(small_batch_session(spark), GROUP)


def in_a_file(folder, life, columns):
    with closing(SqliteTableStore(folder / f"{next(NUMBERS)}.db")) as store:
        store.prepare()
        live_through(store, life, columns)


@given(life=lives())
@SOME
def test_a_history_is_right_after_any_batch(columns, tmp_path, life):
    in_a_file(tmp_path, life, columns)


@given(life=lives())
@settings(SOME, max_examples=max(2, EXAMPLES // 10))
def test_a_history_is_right_in_postgresql_too(columns, database, life):
    with closing(PostgresTableStore(database())) as store:
        store.prepare()
        live_through(store, life, columns)


@seed(3)
@given(life=lives())
@settings(SOME, max_examples=200, derandomize=False, database=None)
def long_enough_to_see_a_fault(columns, folder, life):
    in_a_file(folder, life, columns)


def _as_rows_are_replaced(role, by, destroyed):
    return [query.where(sa.not_(role.staged.c["_deleted"])) for query in _PARTITIONS(role, by, destroyed)]


_PARTITIONS = affected._partitions
FAULTS = {"a deletion reaches no version": (affected, "_partitions", _as_rows_are_replaced)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_histories_shows(fault, columns, tmp_path, monkeypatch):
    module, name, planted = FAULTS[fault]
    monkeypatch.setattr(module, name, planted)
    with pytest.raises(AssertionError):
        long_enough_to_see_a_fault(columns, tmp_path)


payments = Table.from_events(
    Payment,
    key="payment_id",
    columns={
        "amount": on(Payment.Received).take("amount"),
        "customer": on(Payment.Received).take("customer_id"),
        "reason": [on(Payment.Refused).take("reason"), on(Payment.Received).set("")],
    },
)
payment_history = history("payment_history", payments)
ALL = ProjectionGroup("all_histories", [price_history, recent_prices, payment_history])
REGISTRY = {kind.schema_id: kind.registered for kind in Payment.event_types.values()}


class Ledger:
    """Histories in a store, kept by Spark, and those who write what they are of."""

    def __init__(self, spark, store):
        self.environment = Environment(spark, small_batch_session(spark), store, MemoryLog(REGISTRY))
        self.log, self.store = self.environment.log, store
        self.times = {}
        rebuild(self.environment, ALL)
        self.layout = store.serving(ALL, view_columns(spark, ALL))[1]

    def record(self, payment, version, event, minute):
        key = f"payment-{payment}@{version}"
        value = None if event is None else event_type_of(event).encode(event)
        self.times.setdefault(key, minute * MINUTE)
        self.log.append("payment", key.encode(), value, time=EPOCH + timedelta(minutes=minute))

    def rows(self, *names):
        return stored(self.store, self.layout, names or [view.name for view in ALL.views])

    def expected(self):
        return {**expected(self.log), "payment_history": self.payments()}

    def payments(self):
        records = [(n, key.decode(), value) for n, (key, value) in enumerate(self.log.records("payment"))]
        rows = event_history_of(payments, records, self.times, registry=REGISTRY)
        return in_order([({**row, "amount": as_text(row["amount"])}, *times) for row, *times in rows])

    def check(self, after):
        right, found = self.expected(), self.rows()
        wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
        assert not wrong, f"after {after}: {wrong}"


def as_text(amount):
    return None if amount is None else f"{amount:.4f}"


@pytest.fixture
def ledger(spark, store):
    return Ledger(spark, store)


def random_change(chance, lsn):
    return {
        "shop": chance.randrange(2), "sku": chance.choice("ab"), "lsn": lsn - chance.choice([0, 0, 0, 23, 46]),
        "price": chance.choice([None, 1, 2, 3]), "minute": chance.randrange(7), "snapshot": chance.random() < 0.2,
        "times": chance.randint(1, 2),
    }  # fmt: skip


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
def test_spark_keeps_histories_as_it_would_rebuild_them(ledger, spark, tmp_path):
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
        rebuild(again, ALL)
        assert stored(store, store.serving(ALL, view_columns(spark, ALL))[1], ledger.rows()) == ledger.expected()


def minutes(count):
    return EPOCH + timedelta(minutes=count)


@first_of("store", "SQLite", "PostgreSQL")
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


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
@pytest.mark.parametrize(
    ("view", "moment", "words"),
    [
        ("recent_prices", minutes(1), "keeps versions for 0:02:00, and 1970-01-01T00:01:00+00:00 is longer ago"),
        ("price_history", datetime(2026, 1, 1), "has no time zone"),
        ("prices", minutes(1), "serves no history 'prices'"),
    ],
)
def test_a_time_for_which_no_history_answers_is_refused(ledger, view, moment, words):
    with pytest.raises(InvalidDefinition) as caught:
        rows_as_of(ledger.store, ALL, view, moment)
    assert words in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
def test_what_is_kept_is_there_for_all_times_within_keep_before_now(ledger, monkeypatch):
    write(ledger.log, change_of(1, at=0))
    write(ledger.log, change_of(2, at=1))
    write(ledger.log, change_of(3, at=4))
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    monkeypatch.setattr(finals, "now", lambda connection: 5 * MINUTE)
    found = [rows_as_of(ledger.store, ALL, recent_prices, minutes(minute))["price"].to_pylist() for minute in (3, 4, 5)]
    assert found == [[2], [3], [3]]
    with pytest.raises(InvalidDefinition, match="is longer ago"):
        rows_as_of(ledger.store, ALL, recent_prices, minutes(2))


def change_of(price, *, at):
    return {"shop": 1, "sku": "a", "lsn": 1_000 + price, "price": price, "minute": at, "snapshot": False, "times": 1}


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
def test_the_command_line_shows_the_rows_as_of_a_time(ledger):
    write(ledger.log, change_of(7, at=2))
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()

    def told(*words):
        given = ["projections", "as-of", f"{__name__}:ALL", *words, "--views-url", f"sqlite:///{ledger.store.path}"]
        return CliRunner().invoke(application(), given)

    (row,) = json.loads(told("price_history", "--at", "1970-01-01T00:02:00Z", "--json").output)
    assert row == {
        "shop": 1, "sku": "a", "price": 7, "valid_from": "1970-01-01T00:02:00+00:00", "valid_to": None,
        "is_current": True,
    }  # fmt: skip
    assert told("price_history", "--at", "1970-01-01T00:01:59Z").output == ""
    assert "price=7" in told("price_history", "--at", "1970-01-01T00:02:01Z").output
    assert "'soon' is no time" in str(told("price_history", "--at", "soon").exception)


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
