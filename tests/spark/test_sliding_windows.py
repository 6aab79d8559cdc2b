"""Sliding windows: every row counts what its partition did within the time before it, live as recomputed."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, sliding, view
from projections.errors import InvalidDefinition
from projections.testing.trial import ViewTrial
from tests.rows import each_row

orders = Table.from_changelog(
    sa.Table(
        "orders",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("customer_id", sa.BigInteger),
        sa.Column("at", sa.DateTime(timezone=True)),
    ),
    topic="shop.public.orders",
)
HOUR = dt.timedelta(hours=1)
NOON = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)


@view(key="id", by="customer_id", tables={"orders": orders})
def last_hour(orders: DataFrame) -> DataFrame:
    return orders.withColumn("recent", F.count("*").over(sliding("at", "1 hour", by="customer_id")))


@pytest.fixture
def view_spark(spark: SparkSession) -> SparkSession:
    """The session of our own tests, in place of the plug-in's."""
    return spark


def test_a_row_counts_what_is_an_hour_old_to_the_microsecond_whatever_comes_late_or_goes(
    view_trial: Callable[[ProjectionGroup], ViewTrial],
) -> None:
    chance, rows = random.Random(5), dict[int, dict[str, object]]()
    trial = view_trial(ProjectionGroup("sliding", [last_hour]))
    steps = (dt.timedelta(), HOUR, HOUR + dt.timedelta(microseconds=1), -HOUR, dt.timedelta(minutes=20), None)
    for batch in range(3):
        for _ in range(6):
            step, number = chance.choice(steps), chance.randrange(10)
            moment = None if step is None else NOON + step * chance.randrange(3)
            rows[number] = {"id": number, "customer_id": chance.randrange(2), "at": moment}
            trial.put(orders, rows[number])
        if batch:
            trial.delete(orders, {"id": (gone := chance.choice(sorted(rows)))})
            del rows[gone]
        trial.check()
        found = {row["id"]: row["recent"] for row in trial.rows("last_hour")}
        assert found == {number: expected(row, rows) for number, row in rows.items()}


def expected(row: dict, rows: dict) -> int:
    own = [other["at"] for other in rows.values() if other["customer_id"] == row["customer_id"]]
    if row["at"] is None:
        return own.count(None)
    return sum(at is not None and row["at"] - HOUR <= at <= row["at"] for at in own)


@each_row(("size", "says"), [("-1 hour", "is negative"), ("1 month", "is of months"), ("x", "no length")])
def test_a_size_that_is_none_is_refused(size: str, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        sliding("at", size, by="customer_id")
