"""A column gets another type at its source: what does not fit stops the run at its record, what still fits goes on."""

from __future__ import annotations

from decimal import Decimal

import pytest
import sqlalchemy as sa

from cdc.changes.column_types import reader_for
from projections import ProjectionGroup, Table, view
from projections.errors import UndecodableRecord
from projections.logs.port import OffsetRange
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction
from projections.spark.reading.records import without
from projections.testing.memory_log import ChangeWriter, MemoryLog
from projections.testing.trial import ViewTrial
from tests.rows import each_row

PRICES = sa.Table(
    "prices",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("amount", sa.BigInteger),
    sa.Column("name", sa.Text),
)
prices = Table.from_changelog(PRICES, topic="shop.public.prices")


@view(key="id")
def listed(prices):
    return prices.select("id", "amount", "name")


def records(small, table, column, values):
    """Changes of a table, each of which has one of the values in a column."""
    log = MemoryLog()
    changes = ChangeWriter(log)
    for number, value in enumerate(values):
        changes.put(table, {"id": number, column: value})
    return log.scan(small, OffsetRange({table.topic: {0: 0}}, log.end_offsets([table.topic])))


def test_values_that_fit_go_on_and_one_that_does_not_stops_the_run_at_its_record(spark, tmp_path):
    with ViewTrial(spark, ProjectionGroup("prices", [listed]), tmp_path) as trial:
        trial.put(prices, {"id": 1, "amount": 5, "name": "tea"})
        trial.check()
        trial.put(prices, {"id": 1, "amount": 2**40, "name": None})
        trial.check()
        trial.put(prices, {"id": 1, "amount": "12.50", "name": "tea"})
        with pytest.raises(UndecodableRecord, match=r"topic shop\.public\.prices, partition 0, offset 2") as caught:
            trial.check()
        assert "amount" in caught.value.message
        assert trial.rows("listed") == [{"id": 1, "amount": 2**40, "name": None}]


def test_every_other_type_is_refused_at_its_record(small):
    values = ["12.50", 12.5, {"scale": 2, "value": "BOI="}, [1], True]
    found = Judge({}, small).faults(prices, records(small, prices, "amount", values))
    assert [fault.offset for fault in found] == list(range(len(values)))
    assert all("amount" in fault.error.message for fault in found)


COSTS = sa.Table(
    "costs", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("cost", sa.Numeric(12, 2))
)
costs = Table.from_changelog(COSTS, topic="shop.public.costs")


FITTING = ["1", "1.5", "-1.50", "1.5000", "1.50" + 20 * "0", "0E-10", "1E+3", "1.5E+1", "9999999999.99", "12E-2"]
ROUNDED = ["1.005", "0.001", "1E-3", "1.5E-30", "1." + 29 * "0" + "1"]


def test_a_decimal_of_another_scale_fits_unless_the_declared_scale_would_round_it(small):
    raw = records(small, costs, "cost", [*FITTING, *ROUNDED])
    found = Judge({}, small).faults(costs, raw)
    assert [fault.offset for fault in found] == list(range(len(FITTING), len(FITTING) + len(ROUNDED)))
    assert all("cost" in fault.error.message for fault in found)
    rows = Reduction({}).reduce(without(raw, found), costs).orderBy("id").collect()
    assert [row.cost for row in rows] == [Decimal(text) for text in FITTING]


@each_row("text", [*FITTING, *ROUNDED])
def test_python_refuses_the_same_decimals(text):
    read = reader_for(COSTS.c.cost)
    if text in FITTING:
        assert read(text) == Decimal(text)
    else:
        with pytest.raises(ValueError, match="2 digits"):
            read(text)
