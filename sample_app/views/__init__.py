"""The shop's views, kept by one run: a reader sees them at one moment of the log."""

from projections import ProjectionGroup
from sample_app.views.order_details import order_details
from sample_app.views.payment_risk import payment_risk

shop_views = ProjectionGroup("shop", [order_details, payment_risk])

__all__ = ["order_details", "payment_risk", "shop_views"]
