"""Branches of payments for a router in a process of its own, which learns its topic from the environment."""

from __future__ import annotations

import os

from projections import branches, field, of_type
from tests.integration.payments_of_every_kind import Method, Payment

TOPIC = os.environ.get("FACTFOLD_TEST_TOPIC", "payment")

payments = branches(
    Payment,
    {
        "suspicious": (field("amount") > 900) | (field("address.country").is_in(["XX", "YY"])),
        "cash": field("method") == Method.CASH,
        "refunds": of_type(Payment.Refunded),
    },
    otherwise="validated",
    topic=TOPIC,
)
