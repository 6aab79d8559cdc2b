"""A queue for a process of its own, killed when its database has committed and its broker has not heard of it."""

from __future__ import annotations

import os
import signal
from typing import Any

import sqlalchemy as sa

from eventstore import Subscription, queue
from eventstore.kafka.share_source import ShareSource
from tests.ledger import LEDGER, Payment


def declared(topic: str) -> Subscription[..., None]:
    """A queue of a topic whose workers book payments in the transaction of the inbox."""

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return queue(topic, group=f"desk-{topic}", batch=10, timeout=5)(book)


book = declared(os.environ.get("FACTFOLD_TEST_TOPIC", "payment"))


def _killing(times: int) -> Any:
    left, original = [times], ShareSource.acknowledge

    def acknowledge(self: ShareSource, arrivals: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, arrivals)

    return acknowledge


if "FACTFOLD_TEST_KILL_QUEUE" in os.environ:
    ShareSource.acknowledge = _killing(int(os.environ["FACTFOLD_TEST_KILL_QUEUE"]))  # type: ignore[method-assign]
