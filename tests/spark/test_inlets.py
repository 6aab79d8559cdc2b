"""Inlets: whatever rows a batch has come out of the plan as they went in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.errors import SparkFailed
from projections.spark.failures import described
from projections.spark.live.prepared import Inlet
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
