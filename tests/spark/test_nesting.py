"""The one text of a nested value: equal values have equal texts, and what is of another type has none."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from projections import Table, on
from projections.declaring.columns import ColumnType
from projections.errors import InvalidDefinition
from projections.spark import nesting
from projections.spark.kinds import Reduction
from tests.spark.test_upcasting import raw_frame

SHAPE = (
    "struct<a: array<struct<n: bigint, d: decimal(8,2)>>, m: map<string,struct<t: timestamp>>, b: binary, x: double, "
    "f: boolean, day: date>"
)
WHOLE = {
    "a": [{"n": 1, "d": "1.50"}, None, {"n": None, "d": None}],
    "m": {"a": {"t": "2026-01-02T03:04:05.678901Z"}, "b": None},
    "b": "AQI=",
    "x": 0.0,
    "f": True,
    "day": "0001-02-03",
}
SAME = [
    WHOLE,
    {**dict(reversed(WHOLE.items())), "more": [1]},
    {**WHOLE, "m": dict(reversed(WHOLE["m"].items()))},
    {**WHOLE, "a": [{"d": 1.5, "n": 1}, None, {}]},
    {**WHOLE, "m": {"b": None, "a": {"t": "2026-01-02T04:04:05.678901+01:00"}}},
    {**WHOLE, "x": -0.0},
]
MISFITS = [
    {"a": {"n": 1}}, {"a": [5]}, {"a": [{"n": "1"}]}, {"a": [{"n": 1.5}]}, {"a": [{"d": 1234567}]}, {"m": [1]},
    {"m": {"a": {"t": "soon"}}}, {"b": "@"}, {"f": 1}, {"day": "x"}, {"x": "much"}, [], 5, "text",
]  # fmt: skip
BROKEN = ["", "{", '{"f": true} and more', '{"m": {"a": null, "a": null}}']


def texts(small, values):
    rows = small.createDataFrame([(number, value) for number, value in enumerate(values)], "n int, v string")
    found = rows.coalesce(1).orderBy("n").select(nesting.canonical(F.col("v"), SHAPE).alias("text"))
    again = nesting.opened_up(found, {"text": ColumnType("string", shape=SHAPE)})
    both = found.toArrow()["text"].to_pylist()
    assert again.select(nesting.as_stored(F.col("text"), SHAPE).alias("text")).toArrow()["text"].to_pylist() == both
    return both


def test_equal_values_have_one_text(small):
    assert texts(small, map(json.dumps, SAME)) == [json.dumps(WHOLE, separators=(",", ":"))] * len(SAME)


def test_what_is_of_another_type_at_any_depth_has_no_text(small):
    assert texts(small, [*map(json.dumps, MISFITS), *BROKEN]) == [None] * (len(MISFITS) + len(BROKEN))


def halls(seats):
    """A class as it is at one time, by its seats."""

    class Hall(Aggregate, category="hall"):
        @event
        class Built:
            rows: list[seats]
            best: seats

    return Hall


@dataclass
class FirstSeat:
    number: int
    name: str


@dataclass
class Spot:
    x: int


@dataclass
class Seat:
    name: str
    price: float = 1.5
    at: Spot | None = None


@dataclass
class Strict:
    name: str
    price: float


FIRST, TODAY = halls(FirstSeat), halls(Seat)


def folded(small, today):
    built = on(today.Built)
    table = Table.from_events(today, key="hall_id", columns={c: built.take(c) for c in ("rows", "best")})
    (old,), (new,) = FIRST.event_types.values(), today.event_types.values()
    happened = [old.encode(FIRST.Built(rows=[FirstSeat(1, "a")], best=FirstSeat(2, "b")))]
    if today is TODAY:
        happened.append(new.encode(TODAY.Built(rows=[Seat("c", 2.5, Spot(3))], best=Seat("e"))))
    records = [(number, f"hall-{number}@0", value) for number, value in enumerate(happened)]
    registry = {kind.schema_id: kind.registered for kind in (old, new)}
    rows = Reduction(registry).reduce(raw_frame(small, records), table).select(*table.columns).toArrow().to_pylist()
    return rows, table


def test_a_record_that_was_written_before_has_todays_fields_with_their_defaults(small):
    rows, table = folded(small, TODAY)
    found = {row["hall_id"]: {c: json.loads(row[c]) for c in table.payload} for row in rows}
    assert found == {
        "0": {"rows": [{"name": "a", "price": 1.5, "at": None}], "best": {"name": "b", "price": 1.5, "at": None}},
        "1": {
            "rows": [{"name": "c", "price": 2.5, "at": {"x": 3}}],
            "best": {"name": "e", "price": 1.5, "at": None},
        },
    }


def test_a_new_field_without_a_default_is_refused_with_its_place(small):
    with pytest.raises(InvalidDefinition, match="without price, which has no default") as refused:
        folded(small, halls(Strict))
    assert refused.value.place == "hall.built.rows[].price"
