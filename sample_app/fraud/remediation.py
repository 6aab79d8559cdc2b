"""The fraud-remediation service: a suspicious payment holds its order; the customer's score then decides.

Its cases lie in a database of its own, written in the transaction of the inbox, so each payment opens one case however
often it is delivered. The commands go to the shop's event store, outside of that transaction: the order refuses what
has been done already. The score is the one of the view `payment_risk`: as it was when the customer paid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from eventstore import Accepted, Dispatcher, Metadata, RecordedEvent, Subscription, subscription
from sample_app.orders import Order
from sample_app.payments import Payment
from sample_app.shop import cancel_order

TRUSTED_SCORE = 600
NOTHING_TO_HOLD = "nothing to hold"  # cancelled before it was looked at
_LOOK_SECONDS = 0.2

metadata = sa.MetaData()
cases = sa.Table(
    "cases",
    metadata,
    sa.Column("payment", sa.Text, primary_key=True),
    sa.Column("order_id", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),  # open → released or cancelled; or nothing to hold
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),  # the payment's event
)
_card_tests = sa.table(
    "card_tests", *map(sa.column, ("customer_id", "payment_id", "large_payment_id", "amount", "tried"))
)
_risk = sa.table("payment_risk", sa.column("payment_id"), sa.column("credit_score"))


class Remediation:
    """Holds the orders of suspicious payments, and settles them once the view knows the customer's score."""

    def __init__(
        self,
        orders: Dispatcher,
        *,
        database: sa.Engine,
        views: sa.Engine,
        on_called: Callable[[str], None] = lambda order_id: None,
    ) -> None:
        self._orders, self._database, self._views = orders, database, views
        self._on_called = on_called
        metadata.create_all(database)

    def subscription(self) -> Subscription[..., None]:
        """The handler of suspicious payments."""

        @subscription("payment.suspicious", group="fraud-remediation")
        def review(event: Payment.Received, recorded: RecordedEvent, tx: sa.Connection) -> None:
            self._on_called(event.order_id)
            why = recorded.caused()
            held = self._orders.with_metadata(why).send(event.order_id, Order.hold, reason=f"payment of {event.amount}")
            case = {
                "payment": recorded.stream.removeprefix("payment-"),
                "order_id": event.order_id,
                "outcome": "open" if isinstance(held, Accepted) else NOTHING_TO_HOLD,
                "conversation": why.correlation_id,
                "cause": why.causation_id,
            }
            tx.execute(sa.insert(cases), case)

        return review

    def settle(self, stop: threading.Event) -> None:
        """Settle cases as the view comes to know their scores, until ``stop`` is set."""
        while not stop.wait(_LOOK_SECONDS):
            self._settle_known()

    def _settle_known(self) -> None:
        """Release or cancel the order of every open case whose payment the view shows."""
        with self._database.connect() as connection:
            waiting = connection.execute(sa.select(cases).where(cases.c.outcome == "open")).all()
        scores = self._scores([case.payment for case in waiting])
        for case in waiting:
            if case.payment in scores:
                self._settle(case, scores[case.payment])

    def outcomes(self) -> dict[str, int]:
        """How many cases came to which end."""
        query = sa.select(cases.c.outcome, sa.func.count()).group_by(cases.c.outcome)
        with self._database.connect() as connection:
            return {outcome: count for outcome, count in connection.execute(query)}

    def card_tests(self) -> list[dict[str, Any]]:
        """The payments before which a customer's card was tried out, as far as the view knows."""
        with self._views.connect() as connection:
            return [dict(row) for row in connection.execute(sa.select(_card_tests)).mappings()]

    def _scores(self, payments: list[str]) -> dict[str, int | None]:
        query = sa.select(_risk.c.payment_id, _risk.c.credit_score).where(_risk.c.payment_id.in_(payments))
        with self._views.connect() as connection:
            return {payment: score for payment, score in connection.execute(query)}

    def _settle(self, case: Any, score: int | None) -> None:
        orders = self._orders.with_metadata(Metadata(correlation_id=case.conversation, causation_id=case.cause))
        trusted = score is not None and score >= TRUSTED_SCORE
        if trusted:
            settled = orders.send(case.order_id, Order.release, reason=f"score {score}")
        else:
            settled = cancel_order(orders, case.order_id, reason=f"suspicious payment, score {score}")
        outcome = "released" if trusted else "cancelled"
        if not isinstance(settled, Accepted):
            # No longer held: cancelled elsewhere, or settled by a service that died before it noted the outcome.
            outcome = "cancelled" if orders.load(Order, case.order_id).status == "cancelled" else "released"
        with self._database.begin() as connection:
            connection.execute(sa.update(cases).where(cases.c.payment == case.payment).values(outcome=outcome))
