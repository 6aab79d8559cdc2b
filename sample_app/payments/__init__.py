"""Payments: events, routed into branches by what they say."""

from sample_app.payments.branching import SUSPICIOUS_ABOVE, payment_branches
from sample_app.payments.payment import Payment

__all__ = ["SUSPICIOUS_ABOVE", "Payment", "payment_branches"]
