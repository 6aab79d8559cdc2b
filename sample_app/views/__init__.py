"""The shop's views, in two groups. A reader sees all views of one group at the same moment of the log."""

from projections import ProjectionGroup
from sample_app.views.card_tests import card_tests
from sample_app.views.order_details import order_details
from sample_app.views.orders_per_day import orders_per_day
from sample_app.views.payment_risk import payment_risk
from sample_app.views.search_ctr import search_clicks, search_ctr

shop_views = ProjectionGroup("shop", [order_details, payment_risk])
# Over time: they take longer, and the views of the present do not wait for them.
time_views = ProjectionGroup("shop_times", [orders_per_day, search_clicks, search_ctr, card_tests])

__all__ = [
    "card_tests",
    "order_details",
    "orders_per_day",
    "payment_risk",
    "search_clicks",
    "search_ctr",
    "shop_views",
    "time_views",
]
