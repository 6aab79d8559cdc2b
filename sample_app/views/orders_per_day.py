"""orders_per_day = orders grouped by the day in Berlin on which they were placed; each day final ten minutes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import FinalResults, Stream, tumbling, view, windowed
from sample_app.orders import Order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

placements = Stream.from_events(Order, events=Order.Placed, key="order_id")
orders_by_day = windowed("orders_by_day", placements, tumbling("1 day", zone="Europe/Berlin"), on="event_time")


@view(by="window_start", final=FinalResults("window_end", after="10 minutes"))
def orders_per_day(orders_by_day: DataFrame) -> DataFrame:
    """One row a day, of 23 to 25 hours, with what was ordered on it."""
    from pyspark.sql import functions as F

    return orders_by_day.groupBy("window_start").agg(
        F.max("window_end").alias("window_end"),
        F.count("*").alias("orders"),
        F.sum("amount").alias("amount"),
    )
