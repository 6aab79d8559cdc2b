"""A column gets another type at its source: what does not fit stops the run at its record, what still fits goes on."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

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
