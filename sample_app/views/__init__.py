"""The shop's views."""

from sample_app.views.order_details import order_details, shop_views

__all__ = ["order_details", "shop_views"]
