"""Histories of prices and payments: the rows they must show, who writes what they are of, and their SQL."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from itertools import groupby

import sqlalchemy as sa
from hypothesis import strategies as st

from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from projections import Environment, ProjectionGroup, Table, history, on, rebuild
from projections.declaring.tables import BELOW_STREAMED
from projections.spark.exchange import fetched
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.testing.memory_log import MemoryLog
from tests.conformance.followed_views import World, drawn_batches, followed
from tests.conformance.relational_batches import RelationalBatches
from tests.integration.payments import Payment
from tests.reference import fold_table, versions_per_key

MINUTE = 60_000_000


def history_of(records, *, keep=None):
    """The rows of a captured table's history: key and columns as a dictionary, and both times in microseconds."""
    found = []
    for key, versions in versions_per_key(records).items():
        states = [(v.since, None if v.row is None else {**v.row, **json.loads(key)}) for v in versions]
        found += lasting(states, keep=keep)
    return in_order(found)


def event_history_of(table, records, times, *, registry):
    """The rows of the history of a table of events, folded anew up to each event that sets a column, and the first.

    ``times`` are by the keys of records.
    """
    found = []
    newest = {key: record for record in sorted(records) for key in [record[1]]}
    for stream, events in groupby(sorted(newest.values(), key=_place), key=lambda record: record[1].rpartition("@")[0]):
        of_stream = list(events)
        gone = any(value is None for _, _, value in records_of(records, stream))
        states = []
        for number in range(0 if gone else len(of_stream)):
            if number and not sets_a_column(table, of_stream[number][2], registry):
                continue
            ((identity, row),) = fold_table(table, of_stream[: number + 1], registry).items()
            states.append((times[of_stream[number][1]], {table.key[0]: identity, **row}))
        found += lasting(states)
    return in_order(found)


def sets_a_column(table, value, registry):
    written, fields = AvroDecoder(registry.__getitem__).decode(value)
    happened = {kind.name for kind, _ in table.aggregate.stored_type(written.name).today(written.version, fields)}
    return any(setter.event.name in happened for setters in table.setters.values() for setter in setters)


def _place(record):
    stream, _, version = record[1].rpartition("@")
    return stream, int(version)


def records_of(records, stream):
    return [record for record in records if record[1].rpartition("@")[0] == stream]


def lasting(states, *, keep=None):
    """Of states in their order, each with its beginning, those that were valid for a while."""
    spans = []
    for number, (since, row) in enumerate(states):
        until = min((later for later, _ in states[number + 1 :]), default=None)
        if row is not None and (since is None or until is None or since < until):
            spans.append((row, since, until))
    newest = max((time for _, *times in spans for time in times if time is not None), default=0)
    return [span for span in spans if keep is None or span[2] is None or span[2] + keep >= newest]


def at(rows, moment):
    """The rows of a history as of a time in microseconds."""
    return [
        row for row, since, until in rows if (since is None or since <= moment) and (until is None or moment < until)
    ]


def in_order(spans):
    return sorted(spans, key=repr)


# ---- histories of prices and payments, those who write what they are of, and what they must show


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PRICES = sa.Table(
    "prices", sa.MetaData(), sa.Column("shop", sa.BigInteger, primary_key=True),
    sa.Column("sku", sa.Text, primary_key=True), sa.Column("price", sa.BigInteger),
)  # fmt: skip
prices = Table.from_changelog(PRICES, topic="shop.public.prices")
price_history = history("price_history", prices)
recent_prices = history("recent_prices", prices, keep="2 minutes", named="known")
GROUP = ProjectionGroup("histories", [price_history, recent_prices])

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


def random_change(chance, lsn):
    return {
        "shop": chance.randrange(2), "sku": chance.choice("ab"), "lsn": lsn - chance.choice([0, 0, 0, 23, 46]),
        "price": chance.choice([None, 1, 2, 3]), "minute": chance.randrange(7), "snapshot": chance.random() < 0.2,
        "times": chance.randint(1, 2),
    }  # fmt: skip


def minutes(count):
    return EPOCH + timedelta(minutes=count)


def change_of(price, *, at):
    return {"shop": 1, "sku": "a", "lsn": 1_000 + price, "price": price, "minute": at, "snapshot": False, "times": 1}


# ---- histories of prices in DuckDB's SQL, over versions that are staged instead of the newest rows


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


def written(log):
    def all_of(batch):
        for change in batch.changes:
            write(log, change)

    return all_of


def shown(store, layout):
    return stored(store, layout, SQL)


WORLD = World(GROUP, (prices,), SQL, expected, shown, written, RelationalHistories)
FOLLOWED = followed(WORLD, lives(), 12)
