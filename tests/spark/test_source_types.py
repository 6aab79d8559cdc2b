"""A column gets another type at its source: what does not fit stops the run at its record, what still fits goes on."""

from __future__ import annotations

from decimal import Decimal

import pytest
import sqlalchemy as sa

from cdc.changes.column_types import reader_for
from projections import ProjectionGroup, Table, view
from projections.errors import UndecodableRecord
from projections.testing.trial import ViewTrial

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


@pytest.fixture
def trial(spark, tmp_path):
    with ViewTrial(spark, ProjectionGroup("prices", [listed]), tmp_path) as trial:
        trial.put(prices, {"id": 1, "amount": 5, "name": "tea"})
        trial.check()
        yield trial


def test_a_type_that_holds_less_or_more_still_fits_as_long_as_its_values_do(trial):
    trial.put(prices, {"id": 1, "amount": 2**40, "name": None})
    trial.check()
    assert trial.rows("listed") == [{"id": 1, "amount": 2**40, "name": None}]


@pytest.mark.parametrize("value", ["12.50", 12.5, {"scale": 2, "value": "BOI="}, [1], True])
def test_another_type_stops_the_run_at_its_record_and_the_views_stay(trial, value):
    trial.put(prices, {"id": 1, "amount": value, "name": "tea"})
    with pytest.raises(UndecodableRecord, match=r"topic shop\.public\.prices, partition 0, offset 1") as caught:
        trial.check()
    assert "amount" in caught.value.message
    assert trial.rows("listed") == [{"id": 1, "amount": 5, "name": "tea"}]


COSTS = sa.Table(
    "costs", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("cost", sa.Numeric(12, 2))
)
costs = Table.from_changelog(COSTS, topic="shop.public.costs")


@view(key="id")
def priced(costs):
    return costs.select("id", "cost")


@pytest.fixture
def costed(spark, tmp_path):
    with ViewTrial(spark, ProjectionGroup("costs", [priced]), tmp_path) as trial:
        yield trial


FITTING = ["1", "1.5", "-1.50", "1.5000", "1.50" + 20 * "0", "0E-10", "1E+3", "1.5E+1", "9999999999.99", "12E-2"]
ROUNDED = ["1.005", "0.001", "1E-3", "1.5E-30", "1." + 29 * "0" + "1"]


def test_a_decimal_of_another_scale_fits_as_long_as_no_digit_is_lost(costed):
    for number, text in enumerate(FITTING):
        costed.put(costs, {"id": number, "cost": text})
    costed.check()
    assert [Decimal(row["cost"]) for row in costed.rows("priced")] == [Decimal(text) for text in FITTING]


@pytest.mark.parametrize("text", ROUNDED)
def test_a_decimal_that_the_declared_scale_would_round_stops_the_run(costed, text):
    costed.put(costs, {"id": 1, "cost": text})
    with pytest.raises(UndecodableRecord, match="cost"):
        costed.check()


@pytest.mark.parametrize("text", [*FITTING, *ROUNDED])
def test_python_refuses_the_same_decimals(text):
    read = reader_for(COSTS.c.cost)
    if text in FITTING:
        assert read(text) == Decimal(text)
    else:
        with pytest.raises(ValueError, match="2 digits"):
            read(text)
