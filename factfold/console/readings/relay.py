"""The relay of the event store: who leads, and what the topics do not hold yet, as `relay status` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from factfold import on_demand
from factfold.console.sources import Clients, Reading


@dataclass(frozen=True, slots=True)
class RelayState:
    """The leader, None if no relay leads; events that wait, and the age of the oldest of them."""

    leader: str | None
    events: int
    seconds: float


def read_relay(clients: Clients) -> RelayState | None:
    """Return the state of the relay; None for a service without Kafka or with Kafka Connect, which needs none."""
    if not clients.places.kafka or clients.places.connect_url is not None:
        return None
    status = on_demand.relay_status(clients.store, clients.settings)
    oldest = min((one.oldest for one in status.waiting if one.oldest is not None), default=None)
    seconds = 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())
    state = RelayState(status.leader, sum(one.events for one in status.waiting), seconds)
    ends = clients.offsets.end_offsets(clients.offsets.existing(one.topic for one in status.waiting))
    note = clients.trends.note
    note("relay relay", state.seconds)
    note("relay relay waiting", float(state.events))
    note("relay relay published", float(sum(end for partitions in ends.values() for end in partitions.values())))
    return state


RELAY: Final = Reading(read_relay, rest=10.0)
