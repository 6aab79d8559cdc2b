"""Fraud remediation: reads suspicious payments only, holds their orders, releases or cancels them."""

from sample_app.fraud.remediation import Remediation, cases

__all__ = ["Remediation", "cases"]
