"""Stopping a connector for certain: Connect forgets a stop, or a task of it, now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from cdc.connect.status import FAILED, STOPPED, ConnectorStatus
from cdc.operating.watch import Deadline, status_of

if TYPE_CHECKING:
    from cdc.connect.client import ConnectClient

# A worker gives a task 5 s to end (task.shutdown.graceful.timeout.ms); a rebalance takes some more.
_ASK_AGAIN_SECONDS: Final = 10.0


def stop(client: ConnectClient, name: str, deadline: Deadline, *, or_failed: bool = False) -> ConnectorStatus:
    """Stop a connector, wait until none of its tasks is left and return its status; ConnectorTimeout.

    With `or_failed`, a connector that stands FAILED without a task counts too. The stop is asked for again after 10 s,
    since it may be over and not look so: an exactly-once task that is just starting asks the very thread that waits for
    its end (seen with Kafka 4.3: 5 s, then it is cancelled), and may write its state when those of stopped tasks have
    been cleared away already. That state stays until the next rebalance, which another stop makes. A connector whose
    own start FAILED receives no stop. It is restarted at once, and starts as a STOPPED one.
    """
    before = None if or_failed else status_of(client, name)
    asked = _ask(client, name, again=before if before is not None and before.state == FAILED else None)

    def halted() -> ConnectorStatus | None:
        nonlocal asked
        status = status_of(client, name)
        if status is not None and deadline.saw(status) and _has_halted(status, or_failed=or_failed):
            return status
        if time.monotonic() - asked > _ASK_AGAIN_SECONDS:
            asked = _ask(client, name, again=status)
        return None

    return deadline.wait(halted, goal="stopped")


def _has_halted(status: ConnectorStatus, *, or_failed: bool) -> bool:
    return status.stopped or (or_failed and status.state == FAILED and not status.tasks)


def _ask(client: ConnectClient, name: str, *, again: ConnectorStatus | None = None) -> float:
    client.stop(name)
    if again is not None and again.state != STOPPED:
        # The target state STOPPED is stored already, and workers get no second notice. A restart reads it.
        client.restart(name, include_tasks=False)
    return time.monotonic()
