"""Payments: events, routed into branches by what they say; refunds."""

from sample_app.payments.branching import SUSPICIOUS_ABOVE, payment_branches
from sample_app.payments.payment import Payment
from sample_app.payments.refund import Refund

__all__ = ["SUSPICIOUS_ABOVE", "Payment", "Refund", "payment_branches"]
