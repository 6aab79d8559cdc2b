"""Where payments go: large ones to the fraud-remediation service, all others straight to shipping."""

from projections import branches, field
from sample_app.payments.payment import Payment

SUSPICIOUS_ABOVE = 250

payment_branches = branches(Payment, {"suspicious": field("amount") > SUSPICIOUS_ABOVE}, otherwise="validated")
