"""Orders: event-sourced."""

from sample_app.orders.order import Order

__all__ = ["Order"]
