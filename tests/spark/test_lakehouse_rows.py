"""Rows of a batch in Delta Lake: worked out once, few or many, and looked up by what tells them apart."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections import Table
from projections.spark.exchange import DRIVER_ROWS
from projections.spark.lakehouse.completing import Staged, state_columns
from projections.spark.lakehouse.kept import kept

MODEL = sa.Table(
    "sides",
    sa.MetaData(),
    sa.Column("one", sa.BigInteger, primary_key=True),
    sa.Column("other", sa.BigInteger, primary_key=True, nullable=True),
    sa.Column("amount", sa.BigInteger),
)
sides = Table.from_view_topic(MODEL, topic="sides-rows")


@pytest.mark.parametrize("rows", [10, DRIVER_ROWS + 5])
def test_rows_are_worked_out_once(spark, rows):
    worked_out = spark.sparkContext.accumulator(0)

    def counted(batches):
        for batch in batches:
            worked_out.add(batch.num_rows)
            yield batch

    found = kept(spark.range(rows, numPartitions=3).mapInArrow(counted, "id bigint"))
    assert (found.count, found.rows.count(), found.few is not None) == (rows, rows, rows <= DRIVER_ROWS)
    assert worked_out.value == rows


def test_a_row_whose_key_has_a_null_is_held_against_the_stored_one(spark):
    columns = ", ".join(f"{name} {kind.ddl}" for name, kind in state_columns(sides).items())

    def row(amount, offset):
        values = {"one": 1, "other": None, "amount": amount, "_epoch": 0, "_pos": offset, "_offset": offset}
        values |= {"_record_key": '{"one":1,"other":null}', "_deleted": False}
        return spark.createDataFrame([tuple(values[name] for name in state_columns(sides))], columns)

    stored = row(5, offset=5)
    assert Staged.of(row(3, offset=3), sides, stored).whole().few.num_rows == 0
    assert Staged.of(row(7, offset=7), sides, stored).whole().few["amount"].to_pylist() == [7]
