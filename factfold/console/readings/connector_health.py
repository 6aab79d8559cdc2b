"""What stands behind the states of connectors: their slots, how far they have come, and their snapshots."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cdc import health
from cdc.operating.connector_health import committed_offsets
from cdc.source.catalogue import not_of, slot_facts, typed_errors
from cdc.source.notifications import NotificationReader
from factfold.cli.cdc.connectors import of_its_own
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from cdc.source.catalogue import ReplicationSlot

_NOTIFICATIONS: Final = "notification.sink.topic.name"
_SHOWN: Final = 30


@dataclass(frozen=True, slots=True)
class HealthShown:
    """One connector as `factfold cdc status` has it; `notes` say what was not looked at, and why.

    `streams` says whether an offset comes from the stream of changes, and not from the initial snapshot. It is None
    before the first offset.
    """

    last_event_age: float | None
    slot: ReplicationSlot | None
    advice: tuple[str, ...]
    offsets: tuple[Mapping[str, Any], ...]
    streams: bool | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotStep:
    """What a connector said of a snapshot; `rows` comes with the end of a table, `chunk` of `chunks` before."""

    time: datetime
    kind: str
    stage: str
    table: str | None
    tables: int
    rows: int | None
    chunk: int | None
    chunks: int | None


def read_slots(clients: Clients) -> dict[str, ReplicationSlot]:
    """Return the replication slot of each connector that reads the database which is configured, by name."""
    source = clients.source
    if source is None:
        return {}
    configs = {name: info.config for name, (info, _) in clients.connect.overview().items()}
    own = {name: config["slot.name"] for name, config in configs.items()
           if "slot.name" in config and not_of(source, config) is None}  # fmt: skip
    with typed_errors(source), source.connect() as connection:
        slots = {name: slot_facts(connection, slot) for name, slot in own.items()}
    for name, slot in slots.items():
        clients.trends.note(f"slot {name}", None if slot is None else slot.lag_bytes)
    return {name: slot for name, slot in slots.items() if slot is not None}


def read_health(clients: Clients, name: str) -> HealthShown:
    """Look at one connector. Raises UnknownConnector."""
    config = clients.connect.config(name)
    source, notes = of_its_own(clients.source, config)
    state, offsets = health(clients.connect, name, source=source), committed_offsets(clients.connect, name)
    streams = any(offset.streamed for offset in offsets) if offsets else None
    return HealthShown(
        state.last_event_age, state.slot, state.advice, tuple(offset.offset for offset in offsets), streams, notes
    )


def read_snapshots(clients: Clients, name: str) -> tuple[SnapshotStep, ...] | None:
    """Return what a connector said of its snapshots, the newest first; None if it writes no such topic."""
    config = clients.connect.config(name)
    topic = config.get(_NOTIFICATIONS)
    if topic is None or not clients.places.kafka:
        return None
    with NotificationReader(clients.settings, topic, connector=config.get("topic.prefix"), whole=True) as reader:
        last = deque(reader.up_to_now(), maxlen=_SHOWN)
    return tuple(
        SnapshotStep(
            one.time, str(one.kind), str(one.stage), one.table, len(one.tables), one.rows, one.chunk, one.chunks
        )
        for one in reversed(last)
    )


SLOTS: Final = Reading(read_slots)
HEALTH: Final = Reading(read_health)
SNAPSHOTS: Final = Reading(read_snapshots)
