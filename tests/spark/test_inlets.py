"""Rows go into a plan that is made once, and plans are read and kept."""

from __future__ import annotations

import datetime as dt
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from projections.errors import SparkFailed
from projections.planning.plans import analysed_plan, operators, plan_in_jvm
from projections.spark.bulk import persisted
from projections.spark.failures import described
from projections.spark.live.prepared import Inlet
from projections.spark.scala import items
from tests.rows import each_row

SCHEMA = pa.schema({
    "text": pa.string(), "number": pa.int32(), "long": pa.int64(), "real": pa.float64(), "truth": pa.bool_(),
    "bytes": pa.binary(), "day": pa.date32(), "time": pa.timestamp("us", "UTC"), "money": pa.decimal128(38, 18),
})  # fmt: skip
EDGES = [
    {"text": "a\x00\"\\\n é 😀 \u2028", "number": -(1 << 31), "long": (1 << 63) - 1, "real": 5e-324, "truth": True,
     "bytes": bytes(range(256)), "day": dt.date(1, 1, 1), "time": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
     "money": Decimal("99999999999999999999.999999999999999999")},
    {"text": "", "number": (1 << 31) - 1, "long": -(1 << 63), "real": float("-inf"), "truth": False, "bytes": b"",
     "day": dt.date(9999, 12, 31), "time": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
     "money": Decimal("-0.000000000000000001")},
    dict.fromkeys(SCHEMA.names),
    {**dict.fromkeys(SCHEMA.names), "text": "null", "real": -0.0, "money": Decimal(0)},
]  # fmt: skip
VALUES = st.fixed_dictionaries({
    "text": st.none() | st.text(), "number": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.none() | st.integers(-(1 << 63), (1 << 63) - 1), "real": st.none() | st.floats(allow_nan=False),
    "truth": st.none() | st.booleans(), "bytes": st.none() | st.binary(), "day": st.none() | st.dates(),
    "time": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
    "money": st.none() | st.decimals(-(10**20) + 1, 10**20 - 1, places=18),
})  # fmt: skip


@pytest.fixture(scope="module")
def inlet(small):
    opened = Inlet(small, "factfold.test.inlet", SCHEMA)
    yield opened
    opened.close()


def through(inlet, rows):
    inlet.fill(pa.Table.from_pylist(rows, SCHEMA))
    return inlet.frame.toArrow().to_pylist()


def test_every_type_comes_back_to_its_last_bit(inlet):
    found = through(inlet, EDGES)
    assert found == EDGES
    assert str(found[3]["real"]) == "-0.0"


def test_not_a_number_stays_one(inlet):
    (row,) = through(inlet, [{**EDGES[0], "real": float("nan")}])
    assert row["real"] != row["real"]


@given(st.lists(VALUES, max_size=24))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_generated_rows_come_back(inlet, rows):
    assert through(inlet, rows) == rows


def test_no_rows_leave_none_of_the_batch_before(inlet):
    through(inlet, EDGES)
    assert through(inlet, []) == []


def test_a_long_value_is_whole(inlet):
    long = {**dict.fromkeys(SCHEMA.names), "text": "x" * 25_000_000}
    assert through(inlet, [long]) == [long]


@each_row(
    "text",
    ['{"text": ["a"], "number": ["no number"]}', '{"text": ["a"', '{"number": [1e99]}'],
    ids=["type", "end", "range"],
)
def test_what_does_not_fit_fails_the_query_and_is_never_null(inlet, text):
    """The planted fault: text that no fill would write."""
    inlet._properties.setProperty("factfold.test.inlet", text)
    with pytest.raises(SparkFailed), described("here"):
        inlet.frame.toArrow()


def test_a_type_without_a_form_is_not_carried():
    assert Inlet.carries(SCHEMA)
    assert not Inlet.carries(pa.schema({"list": pa.list_(pa.int64())}))
    assert not Inlet.carries(pa.schema({"local": pa.timestamp("us")}))


# ---- a plan is read as Spark has it


@pytest.fixture(scope="module")
def queries(small):
    small.range(0).selectExpr("id AS k", "id AS v", "array(id) AS xs", "named_struct('a', id) AS s").createTempView("t")
    small.range(0).selectExpr("id AS k", "id AS w").createTempView("u")
    yield small.sql
    small.catalog.dropTempView("t")
    small.catalog.dropTempView("u")


def expressions_of(plan):
    waiting = [expression for node in operators(plan) for expression in node.expressions]
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting.extend(expression.children)


TEXTS = {
    "joins": "SELECT t.k, u.* FROM t LEFT JOIN u ON t.k = u.k AND w > 1 FULL JOIN u AS o ON o.k = t.k",
    "joins of one side": "SELECT * FROM t LEFT SEMI JOIN u ON t.k = u.k LEFT ANTI JOIN u AS o ON o.k = t.k",
    "groups": "SELECT k % 2 AS half, sum(v) AS s, count(*) FILTER (WHERE v > 1) AS n FROM t GROUP BY k % 2",
    "groupings": "SELECT k, v, sum(v) FROM t GROUP BY ROLLUP (k, v)",
    "windows": "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t",
    "unions": "SELECT k, v FROM t UNION ALL SELECT * FROM u UNION SELECT w, k FROM u",
    "sets": "SELECT k FROM t INTERSECT SELECT k FROM u EXCEPT SELECT w FROM u",
    "rows of arrays": "SELECT k, s.a, x FROM t LATERAL VIEW explode(xs) AS x WHERE CASE WHEN v > 1 THEN true END",
    "subqueries": "SELECT (SELECT max(w) FROM u WHERE u.k = t.k) AS m FROM t WHERE v IN (SELECT w FROM u)",
    "a lateral join": "SELECT * FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k)",
    "many conditions": f"SELECT k FROM t WHERE {' OR '.join(f'v = {n}' for n in range(150))}",
    "a name used twice": "WITH c AS (SELECT k FROM t) SELECT * FROM c JOIN c AS d ON c.k = d.k",
}


@each_row("text", TEXTS.values(), TEXTS)
def test_a_plan_is_the_one_that_spark_has(queries, text):
    plan = analysed_plan(queries(text))
    for node in operators(plan):
        assert node.jvm.nodeName() == node.kind
        assert [(a.name, a.id) for a in node.output] == [(a.name(), a.exprId().id()) for a in items(node.jvm.output())]
        assert {plan.kind for plan in node.subqueries} == {plan.nodeName() for plan in items(node.jvm.subqueries())}
    for expression in expressions_of(plan):
        assert expression.jvm.getClass().getSimpleName() == expression.kind
        assert set(expression.references) == {a.exprId().id() for a in items(expression.jvm.references().toSeq())}


# ---- kept rows beside queries of other threads


ROUNDS = 10


def decoded(spark):
    """A plan that decodes so many kinds of records that comparing it takes some milliseconds."""
    raw = spark.range(3).select(F.col("id").cast("string").cast("binary").alias("value"))
    return raw.select([decode(f"kind_{number}") for number in range(100)])


def decode(name):
    schema = json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "string"}]})
    return from_avro("value", schema, {"mode": "PERMISSIVE", "avroSchema": schema}).alias(name)


def compare_at_once(frame):
    """What two threads do with a kept plan: one derives a query of its own from it, the other looks for it."""
    plan, start = plan_in_jvm(frame), threading.Barrier(2)

    def compare(found):
        start.wait(timeout=30)
        found.canonicalized()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(compare, (plan.clone(), plan)))


def test_a_kept_plan_can_be_looked_for_while_another_thread_derives_from_it(spark):
    for _ in range(ROUNDS):
        frame = persisted(decoded(spark))
        try:
            compare_at_once(frame)
        finally:
            frame.unpersist()
