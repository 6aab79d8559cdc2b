"""Subscriptions for processes of their own, killed at the worst moment there is.

FACTFOLD_TEST_TOPIC names the topic; with FACTFOLD_TEST_KILL the process ends by SIGKILL at that acknowledgement: what
it handled is committed in its database, and the broker has not heard of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from eventstore import subscription
from eventstore.kafka.places import Places
from tests.ledger import LEDGER, Payment

TOPIC = os.environ.get("FACTFOLD_TEST_TOPIC", "payment")
# A group of its own: a member that says who it is stays one until its session ends, whatever topic it read.
GROUP = f"books-of-{TOPIC}"


@subscription(TOPIC, group=GROUP, batch=50)
def book(event: Payment.Received, tx: sa.Connection) -> None:
    """Book a payment in the transaction of the inbox."""
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))


@subscription(TOPIC, group=GROUP, batch=50, guarantee="at-least-once")
def book_without_inbox(event: Payment.Received, tx: sa.Connection) -> None:
    """The planted fault: the same handler with its inbox switched off."""
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))


def _killing(times: int) -> Any:
    left, original = [times], Places.done

    def done(self: Places, messages: Iterable[Any]) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, messages)

    return done


if "FACTFOLD_TEST_KILL" in os.environ:
    Places.done = _killing(int(os.environ["FACTFOLD_TEST_KILL"]))  # type: ignore[method-assign]
