"""orders_per_day = orders grouped by the day in Berlin on which they were placed; each day final ten minutes later."""

from __future__ import annotations

from projections import FinalResults, Stream, sql_view, tumbling, windowed
from sample_app.orders import Order

placements = Stream.from_events(Order, events=Order.Placed, key="order_id")
orders_by_day = windowed("orders_by_day", placements, tumbling("1 day", zone="Europe/Berlin"), on="event_time")
orders_per_day = sql_view(
    "orders_per_day",
    """
    SELECT window_start, max(window_end) AS window_end, count(*) AS orders, sum(amount) AS amount
    FROM orders_by_day GROUP BY window_start
    """,
    tables={"orders_by_day": orders_by_day},
    final=FinalResults("window_end", after="10 minutes"),
)
