"""Shipping: sends what was paid without suspicion."""

from sample_app.shipping.dispatch import parcels, shipping

__all__ = ["parcels", "shipping"]
