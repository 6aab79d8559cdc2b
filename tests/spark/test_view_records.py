"""Records of a view topic in Spark: every type read back, the last of each key, what is refused and judged alike."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
import sqlalchemy as sa

from projections import Table
from projections.errors import UndecodableRecord
from projections.spark.failures import described
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction

RAW = "topic string, partition int, offset bigint, key binary, value binary"
METADATA = sa.MetaData()
EVERY = sa.Table(
    "every", METADATA, sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("side", sa.Text, primary_key=True, nullable=True), sa.Column("name", sa.Text),
    sa.Column("small", sa.Integer), sa.Column("rate", sa.Double), sa.Column("open", sa.Boolean),
    sa.Column("price", sa.Numeric(18, 4)), sa.Column("at", sa.DateTime(timezone=True)), sa.Column("day", sa.Date),
    sa.Column("raw", sa.LargeBinary), sa.Column("seen", sa.DateTime), sa.Column("fees", sa.ARRAY(sa.Numeric(8, 2))),
    sa.Column("goods", sa.JSON),
)  # fmt: skip
every = Table.from_view_topic(EVERY, topic="every", shapes={"goods": dict[str, list[dt.date]]})
REDUCTION = Reduction({})
COLUMNS = [column.name for column in EVERY.columns]
SENT = {"id": 2**60 + 1, "side": None, "name": "__debezium_unavailable_value", "small": -1, "rate": 1 / 3, "open": True,
        "price": "-0.0500", "at": "2026-02-03T04:05:06.000070Z", "day": "0001-02-03", "raw": "00ff",
        "seen": "2026-02-03T04:05:06.000070Z", "fees": ["1.50", None],
        "goods": {"a": ["0001-02-03"], "b": None}}  # fmt: skip
READ = SENT | {"price": Decimal("-0.0500"), "at": dt.datetime(2026, 2, 3, 4, 5, 6, 70, tzinfo=dt.UTC),
               "day": dt.date(1, 2, 3), "raw": b"\x00\xff",
               "seen": dt.datetime(2026, 2, 3, 4, 5, 6, 70, tzinfo=dt.UTC), "fees": '["1.50",null]',
               "goods": '{"a":["0001-02-03"],"b":null}'}  # fmt: skip
NULLS = {**dict.fromkeys(COLUMNS), "id": 1}


def record(row, value="row", *, key=None):
    """Key and value of a record: a row's, or other texts."""
    key = {name: row[name] for name in ("id", "side") if name in row} if key is None else key
    value = row if value == "row" else value
    return [None if part is None else _text(part).encode() for part in (key, value)]


def _text(part):
    return part if isinstance(part, str) else json.dumps(part, separators=(",", ":"))


def raw(small, *records):
    return small.createDataFrame(
        [("every", 0, offset, key, value) for offset, (key, value) in enumerate(records)], RAW
    ).coalesce(1)


def reduced(small, *records):
    found = REDUCTION.reduce(raw(small, *records), every).toArrow().to_pylist()
    return {(row["id"], row["side"]): row for row in found}


def test_every_type_is_read_as_it_was_written_and_the_last_record_of_a_key_counts(small):
    infinite = {**SENT, "id": 3, "side": "a", "rate": "-Infinity", "open": False}
    found = reduced(
        small, record({"id": 1, "side": None, "of an earlier view": 7}), record(SENT), record(infinite), record(NULLS),
        record({**NULLS, "id": 4}), record({**NULLS, "id": 4}, None),
    )  # fmt: skip
    assert {name: found[READ["id"], None][name] for name in COLUMNS} == READ
    assert (found[3, "a"]["rate"], found[3, "a"]["open"]) == (float("-inf"), False)
    assert {name: found[1, None][name] for name in COLUMNS} == NULLS
    assert [(key, row["_pos"]) for key, row in found.items() if row["_deleted"]] == [((4, None), 5)]


BAD = {
    "no key": (None, b"{}"),
    "a key that is no object": record(NULLS, key="7"),
    "a value that is no object": record(NULLS | {"id": 11}, "no JSON"),
    "a key without its column": record(NULLS, key={"side": None}),
    "null in a key column that is never null": record(NULLS, key={"id": None, "side": None}),
    "a key of another type": record(NULLS, key={"id": "x", "side": None}),
    "a column that the view does not have": record({name: None for name in COLUMNS if name != "rate"} | {"id": 12}),
    "a value of another type": record(NULLS | {"id": 13, "price": "much"}),
    "a nested value of another type": record(NULLS | {"id": 15, "goods": {"a": ["soon"]}}),
    "no hexadecimal digits": record(NULLS | {"id": 14, "raw": "xy"}),
}


def test_what_is_no_row_as_declared_is_judged_so_and_one_of_each_kind_is_refused(small):
    raws = raw(small, record(SENT), *BAD.values(), record(NULLS))
    judged = {fault.offset: fault for fault in Judge({}, small).faults(every, raws)}
    assert set(judged) == set(range(1, len(BAD) + 1))
    bad = dict(enumerate(BAD.values(), 1))
    for fault in {fault.kind: fault for fault in judged.values()}.values():
        with pytest.raises(UndecodableRecord) as refused, described("here"):
            reduced(small, record(SENT), bad[fault.offset])
        assert refused.value.message == fault.error.message
        assert refused.value.place == "topic every, partition 0, offset 1"
