"""The shop's views, kept by two runs: a reader sees those of one run at one moment of the log."""

from projections import ProjectionGroup
from sample_app.views.order_details import order_details
from sample_app.views.orders_per_day import orders_per_day
from sample_app.views.payment_risk import payment_risk

shop_views = ProjectionGroup("shop", [order_details, payment_risk])
# Over time: they take longer, and the views of the present do not wait for them.
time_views = ProjectionGroup("shop_times", [orders_per_day])

__all__ = ["order_details", "orders_per_day", "payment_risk", "shop_views", "time_views"]
