"""Versions of rows out of change events: as a payment finds them, and those of every captured row."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore.event_types import event_type_of
from projections import ProjectionGroup, Stream, Table, join_versions, view
from projections.errors import InvalidDefinition, UndecodableRecord
from projections.spark.bulk import WholeTables
from projections.spark.failures import described
from projections.spark.kinds import Reduction, kind_of
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.view_functions import view_columns
from tests.errors import raises
from tests.integration.payments import CUSTOMERS, Payment, entries_of, micros, moment, received, risk_view
from tests.reference import valid_at, versions_per_key
from tests.rows import each_row
from tests.version_tables import HISTORIES

RAW = pa.schema({
    "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.string(), "value": pa.binary(),
    "ce_time": pa.string(),
})  # fmt: skip
REGISTRY = {kind.schema_id: kind.registered for kind in Payment.event_types.values()}
UNAVAILABLE = "__debezium_unavailable_value"
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

payments = received("payments")
entries = entries_of("payments")
customer_versions = Table.versions_of(CUSTOMERS, topic="customers")
customers = Table.from_changelog(CUSTOMERS, topic="customers")


def raw(spark, records):
    rows = [
        dict(zip(RAW.names, ("t", 0, offset, key, value, next(iter(rest), None)), strict=True))
        for offset, (key, value, *rest) in enumerate(records)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, RAW)).coalesce(1)


def rows_of(spark, table, records):
    """The table's rows as a rebuild has them."""
    return kind_of(table).complete(Reduction(REGISTRY).reduce(raw(spark, records), table))


def paid(identity, customer, minute, *, version=0):
    at = None if minute is None else moment(minute)
    event = Payment.Received(customer_id=customer, amount=Decimal("1.50"), paid_at=at)
    return (f"payment-{identity}@{version}", event_type_of(event).encode(event))


def change(op, score, minute, lsn, *, key=1, note=None, times=None):
    after = None if op == "d" else {"id": key, "credit_score": score, "note": note}
    source = {"lsn": lsn, "snapshot": "true" if op == "r" else "false"} | (times or {"ts_us": micros(minute)})
    return (json.dumps({"id": key}), json.dumps({"op": op, "after": after, "source": source}).encode())


def joined(spark, events, changes, *, how="left"):
    """The view's rows by payment: the score at its time, and the note."""
    frames = {
        "payments": rows_of(spark, payments, events),
        "customer_versions": rows_of(spark, customer_versions, changes),
    }
    risk = risk_view(payments, customer_versions, how=how)
    group = ProjectionGroup("risk", [risk])
    tables = WholeTables(frames.__getitem__, group, Disclosure({}, None), spark, few=True)
    found = tables.apply(risk, view_columns(spark, group)[risk.name]).collect()
    assert len(found) == len({row.payment_id for row in found})
    return {row.payment_id: (row.credit_score, row.note) for row in found}


def found_at(case):
    """The score that a payment of each minute finds: that of the version which is valid then."""
    return {
        minute: score
        for minute in range(8)
        for score, start, end in HISTORIES[case][1]
        if (start is None or start <= minute) and (end is None or minute < end)
    }


def test_a_payment_finds_the_version_that_was_valid_at_its_time(small):
    """Payments of eight minutes for each history, and for each order in which its records arrive: in one job."""
    arrived = [*itertools.product(HISTORIES, (1, -1))]
    changes = [
        change(*what, key=number)
        for number, (name, order) in enumerate(arrived)
        for what in HISTORIES[name][0][::order]
    ]
    events = [paid(f"{number} {minute}", number, minute) for number in range(len(arrived)) for minute in range(8)]
    by_minute = {one: {} for one in arrived}
    for payment, (score, _) in joined(small, events, changes, how="inner").items():
        number, minute = map(int, payment.split())
        by_minute[arrived[number]][minute] = score
    assert by_minute == {one: found_at(one[0]) for one in arrived}


def test_the_time_of_a_change_is_the_finest_that_its_record_has_to_the_microsecond(small):
    at = micros(3)
    times = {
        1: {"ts_us": at, "ts_ms": 0}, 2: {"ts_us": at + 1}, 3: {"ts_ns": at * 1000 + 999, "ts_ms": 0},
        4: {"ts_ns": (at + 1) * 1000, "ts_ms": 0}, 5: {"ts_ms": at // 1000}, 6: {"ts_ms": at // 1000 + 1},
    }  # fmt: skip
    changes = [change("c", 500, 0, 10, key=key, times=source) for key, source in times.items()]
    found = joined(small, [paid(f"p{key}", key, 3) for key in times], changes, how="inner")
    assert sorted(found) == ["p1", "p3", "p5"]


def test_a_left_join_keeps_payments_without_a_version_and_without_a_customer(small):
    events = [paid("early", 1, 0), paid("late", 1, 2), paid("stranger", 9, 2), paid("nobody", None, 2)]
    changes = [change("c", 500, 1, 10)]
    found = joined(small, events, changes)
    assert found == {"early": (None, None), "late": (500, None), "stranger": (None, None), "nobody": (None, None)}
    assert joined(small, events, changes, how="inner") == {"late": (500, None)}


def test_an_unavailable_value_is_that_of_the_version_before_and_null_stays_null(small):
    changes = [
        change("c", 1, 1, 10, note="long"), change("u", 2, 2, 20, note=UNAVAILABLE),
        change("u", 3, 3, 30, note=None), change("u", 4, 4, 40, note=UNAVAILABLE),
        change("u", 5, 5, 50, note="new"), change("u", 6, 6, 60, note=UNAVAILABLE),
    ]  # fmt: skip
    found = joined(small, [paid(f"p{m}", 1, m) for m in range(1, 7)], changes)
    assert [found[f"p{m}"] for m in range(1, 7)] == [
        (1, "long"), (2, "long"), (3, None), (4, None), (5, "new"), (6, "new"),
    ]  # fmt: skip


def test_a_record_that_comes_again_gives_no_second_row(small):
    events, changes = [paid("p", 1, 3)], [change("c", 500, 1, 10)]
    assert joined(small, events * 2, changes * 3) == {"p": (500, None)}


@each_row(
    ("table", "records", "words"),
    [
        (payments, [paid("p", 1, None)], "field paid_at is missing"),
        (entries, [paid("p", 1, 1)], "header ce_time is missing"),
        (payments, [paid("p", 1, 1), paid("p", 1, 2, version=1)], "p has two of the stream's events"),
        (customer_versions, [change("c", 1, 1, 10, times={"ts_sec": 5})], "does not say when its transaction"),
        (customer_versions, [change("u", 1, 1, 10, note=UNAVAILABLE)], "key 1 is unavailable"),
        (customer_versions, [change("d", 1, 1, 5), ("{}", b"nonsense")], "column id has a value"),
        (customer_versions, [('{"id": 1}', b"nonsense")], "not a change event"),
    ],
    ids=["no time", "no header", "second event", "no source time", "unavailable", "no key", "no change event"],
)
def test_what_cannot_be_a_row_is_refused_with_its_place(small, table, records, words):
    with pytest.raises(UndecodableRecord) as caught, described("test"):
        rows_of(small, table, records).collect()
    assert words in caught.value.message
    assert caught.value.remedy
    assert "topic" in (caught.value.place or "")


def test_a_stream_keyed_by_event_has_a_row_for_each_and_the_fields_of_all_types(small):
    refused = Payment.Refused(reason="no funds")
    records = [
        (*paid("a@b", 7, 1), "2024-01-01T00:05:00.000001Z"),
        ("payment-a@b@1", event_type_of(refused).encode(refused), "2024-01-01T01:06:00+01:00"),
    ]
    found = {row.entry: row for row in rows_of(small, entries, records).collect()}
    assert {k: (r.payment_id, r.customer_id, r.reason) for k, r in found.items()} == {
        "a@b@0": ("a@b", 7, None), "a@b@1": ("a@b", None, "no funds"),
    }  # fmt: skip
    assert [found[k]["_time"] for k in ("a@b@0", "a@b@1")] == [micros(5) + 1, micros(6)]


def test_a_row_has_the_version_of_its_event_where_the_stream_asks_for_it(small):
    numbered = Stream.from_events(Payment, events=Payment.Received, key="entry", id="payment_id", version="version")
    records = [(*paid("p", 7, 1, version=version), "2024-01-01T00:05:00Z") for version in (2, 10)]
    found = {row.entry: row.version for row in rows_of(small, numbered, records).collect()}
    assert found == {"p@2": 2, "p@10": 10}
    first = Stream.from_events(Payment, events=Payment.Received, key="payment_id", time="paid_at", version="nr")
    assert [row.nr for row in rows_of(small, first, [paid("p", 7, 1, version=3)]).collect()] == [3]


def test_events_of_other_types_are_no_rows(small):
    refused = Payment.Refused(reason="no funds")
    records = [paid("p", 7, 1), ("payment-p@1", event_type_of(refused).encode(refused))]
    assert [row.payment_id for row in rows_of(small, payments, records).collect()] == ["p"]


def planned(spark, function, *, tables=None):
    declared = view(
        key="payment_id",
        tables=tables or {"payments": payments, "customer_versions": customer_versions},
    )(function)
    return view_columns(spark, ProjectionGroup("planned", [declared]))


def test_the_plan_of_an_as_of_join_is_accepted_with_the_columns_it_returns(small):
    def risk(payments, customer_versions):
        return join_versions(payments, customer_versions, on="customer_id", how="left")

    columns = planned(small, risk)["risk"]
    assert {name: column.ddl for name, column in columns.items()} == {
        "payment_id": "string", "customer_id": "bigint", "amount": "decimal(18,4)", "paid_at": "timestamp",
        "credit_score": "bigint", "note": "string",
    }  # fmt: skip


def test_as_of_finds_reference_and_time_through_a_function_s_own_columns(small):
    def risk(payments, customer_versions):
        whole = payments.where("amount > 0").withColumnRenamed("customer_id", "payer").select("*")
        good = customer_versions.where("credit_score > 0")
        once = join_versions(whole, good, on="payer", take={"score": "credit_score"})
        return join_versions(once, good, on="payer", take={"score_again": "credit_score"}).select(
            "payment_id", "score_again"
        )

    assert list(planned(small, risk)["risk"]) == ["payment_id", "score_again"]


@each_row(
    ("function", "code", "words"),
    [
        (lambda p, v: join_versions(p, v, on="customer"), "unknown-column", "on 'customer', which is no column"),
        (lambda p, v: join_versions(p, v, on="amount"), "invalid-definition", "not by their key and time"),
        (lambda p, v: join_versions(p, v, on="customer_id", how="right"), "invalid-definition", "cannot join 'right'"),
        (lambda p, v: join_versions(p, v, on="customer_id", take=["score"]), "unknown-column", "has no column 'score'"),
        (lambda p, v: join_versions(p.withColumnRenamed("amount", "note"), v, on="customer_id"),
         "invalid-definition", "two columns 'note'"),
        (lambda p, v: join_versions(p.drop("paid_at"), v, on="customer_id"),
         "invalid-definition", "without an event time"),
        (lambda p, v: join_versions(p, v.select("id", "note"), on="customer_id"),
         "invalid-definition", "without versions"),
        (lambda p, v: join_versions(v, p, on="id"), "invalid-definition", "without versions"),
        (lambda p, v: p.join(v, p.customer_id == v.id), "invalid-definition", "not by their key and time"),
    ],
)  # fmt: skip
def test_an_as_of_join_that_cannot_be_is_refused_when_it_is_planned(small, function, code, words):
    def risk(payments, customer_versions):
        return function(payments, customer_versions)

    with raises(InvalidDefinition, code=code) as caught:
        planned(small, risk)
    assert type(caught.value) is InvalidDefinition
    assert words in caught.value.message
    assert caught.value.remedy


def test_a_table_without_versions_is_refused_by_as_of(small):
    def risk(payments, customers):
        return join_versions(payments, customers, on="customer_id")

    with raises(InvalidDefinition, match="a table without versions", remedy="Table.versions_of"):
        planned(small, risk, tables={"payments": payments, "customers": customers})


minutes = st.integers(0, 7)
notes = st.none() | st.sampled_from(["a", "b", ""])


@st.composite
def histories(draw):
    """Changes of a few customers, each life in order: snapshots, creations, updates, deletions; any times."""
    changes, lsn = [], 100
    for key in draw(st.lists(st.integers(1, 4), max_size=25)):
        lsn += 10
        lived = [c for c in changes if json.loads(c[0])["id"] == key and c[1] is not None]
        exists = bool(lived) and json.loads(lived[-1][1])["op"] != "d"
        op = draw(st.sampled_from(["u", "u", "d"] if exists else ["c"] if lived else ["c", "r", "u"]))
        note = draw(notes | st.just(UNAVAILABLE)) if exists else draw(notes)
        score = draw(st.none() | st.integers(300, 850))
        changes.append(change(op, score, draw(minutes), lsn, key=key, note=note))
        if op == "d":
            changes.append((json.dumps({"id": key}), None))
    repeated = draw(st.lists(st.sampled_from([c for c in changes if c[1]]), max_size=4)) if changes else []
    return draw(st.permutations(changes)) + repeated


@FEW
@given(changes=histories(), events=st.lists(st.tuples(st.none() | st.integers(1, 5), minutes), max_size=30))
def test_an_as_of_join_in_spark_equals_the_look_up_in_plain_python(small, changes, events):
    versions = versions_per_key((offset, *record) for offset, record in enumerate(changes))

    def score_at(customer, minute):
        found = valid_at(versions.get(json.dumps({"id": customer}), []), micros(minute))
        return (found["credit_score"], found["note"]) if found else (None, None)

    records = [paid(f"p{number}", *event) for number, event in enumerate(events)]
    assert joined(small, records, changes) == {f"p{n}": score_at(*event) for n, event in enumerate(events)}


def test_a_view_may_use_a_stream_without_versions(small):
    def rows(payments):
        return payments

    assert "paid_at" in planned(small, rows, tables={"payments": payments})["rows"]
