"""Subscriptions and a queue for processes of their own, killed at the worst moment there is.

FACTFOLD_TEST_TOPIC names the topic; with FACTFOLD_TEST_KILL the process ends by SIGKILL at that acknowledgement: what
it handled is committed in its database, and the broker has not heard of it.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import sqlalchemy as sa

from eventstore import Subscription, queue, subscription
from eventstore.kafka.places import Places
from eventstore.kafka.share_source import ShareSource
from tests.ledger import LEDGER, Payment

TOPIC = os.environ.get("FACTFOLD_TEST_TOPIC", "payment")
# A group of its own: a member that says who it is stays one until its session ends, whatever topic it read.
GROUP = f"books-of-{TOPIC}"


@subscription(TOPIC, group=GROUP, batch=50)
def book(event: Payment.Received, tx: sa.Connection) -> None:
    """Book a payment in the transaction of the inbox."""
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))


def desk(topic: str) -> Subscription[..., None]:
    """A queue of a topic whose workers book payments in the transaction of the inbox."""

    def work(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return queue(topic, group=f"desk-{topic}", batch=10, timeout=5)(work)


work = desk(TOPIC)


def _killing(times: int, original: Any) -> Any:
    left = [times]

    def acknowledge(self: Any, records: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, records)

    return acknowledge


if "FACTFOLD_TEST_KILL" in os.environ:
    _TIMES = int(os.environ["FACTFOLD_TEST_KILL"])
    Places.done = _killing(_TIMES, Places.done)  # type: ignore[method-assign]
    ShareSource.acknowledge = _killing(_TIMES, ShareSource.acknowledge)  # type: ignore[method-assign]
