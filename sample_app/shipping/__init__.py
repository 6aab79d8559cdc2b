"""Shipping: parcels of what was shipped."""

from sample_app.shipping.dispatch import parcels, shipping

__all__ = ["parcels", "shipping"]
