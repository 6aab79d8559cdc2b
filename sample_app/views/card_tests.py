"""card_tests: three small payments of a customer and then a large one, as a stolen card is tried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import field, label, match_pattern, view
from sample_app.payments import SUSPICIOUS_ABOVE
from sample_app.views.payment_risk import payments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

small = label("small", field("amount") < 10)
large = label("large", field("amount") > SUSPICIOUS_ABOVE)
pattern = small.times(3).followed_by(large).within("10 minutes")


@view(by="customer_id", key="payment_id", tables={"payments": payments})
def card_tests(payments: DataFrame) -> DataFrame:
    """One row a match: the first small payment, and the large one."""
    measures = {
        "large_payment_id": large.last("payment_id"),
        "amount": large.last("amount"),
        "tried": small.total("amount"),
    }
    return match_pattern(payments, pattern, by="customer_id", time="paid_at", measures=measures)
