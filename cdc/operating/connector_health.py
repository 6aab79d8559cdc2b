"""How a connector does: its states in Connect, its slot in the source, how old the last change is that it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc.connect.status import ConnectorStatus, SourceOffset, is_well
from cdc.connectors.base import Connector
from cdc.errors import ConnectRejected, UnknownConnector
from cdc.source.catalogue import ReplicationSlot, clock, slot_facts, typed_errors
from cdc.source.oversized_rows import advice_on

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient


@dataclass(frozen=True, slots=True)
class ConnectorHealth:
    """A connector's states, its replication slot, and the age of its last event.

    A quiet source makes the last event old although nothing is wrong: the slot is then active and its lag stays small,
    since heartbeats move the slot and are no events.

    Attributes:
        status: The state of the connector and its tasks.
        slot: The replication slot, None without a source or without a slot of this name.
        last_event_age: Seconds since the commit of the newest transaction that the connector published, None before the
            first event. The source's clock decides, if the source is given.
        well: It runs with all its tasks. A connector of MirrorMaker may have none while nothing matches.
        advice: For a row that is larger than a request: its tables, the SQL that finds it, the remedy.

    Examples:
        >>> (current,) = connector_health(client, rows, source=engine)
        >>> current.well, current.last_event_age, current.slot.lag_bytes
        (True, 3.2, 1216)
    """

    status: ConnectorStatus
    slot: ReplicationSlot | None = None
    last_event_age: float | None = None
    well: bool = False
    advice: tuple[str, ...] = ()


def connector_health(
    client: ConnectClient, *connectors: Connector | str, source: Engine | None = None
) -> tuple[ConnectorHealth, ...]:
    """Return the health of connectors in their order, by default of all of the cluster by name. Nothing is changed.

    Args:
        client: The worker.
        *connectors: The connectors or their names.
        source: An engine of their database, for the replication slots.

    Returns:
        `well`, `status`, `slot`, `last_event_age` in seconds and `advice` of each connector.

    Raises:
        UnknownConnector: Connect does not know one, or has no state of it yet.
        SourceNotReady: The source cannot be asked.
        ConnectUnavailable: No worker answered.

    Examples:
        >>> [one.status.name for one in connector_health(client, source=engine) if not one.well]
        []
    """
    if not connectors:
        return tuple(_health(client, status, info.config, source=source) for info, status in client.overview().values())
    names = [one if isinstance(one, str) else one.name for one in connectors]
    return tuple(_health(client, client.status(name), client.config(name), source=source) for name in names)


def _health(
    client: ConnectClient, status: ConnectorStatus, config: Mapping[str, str], *, source: Engine | None
) -> ConnectorHealth:
    slot, now = None, datetime.now(UTC)
    if source is not None:
        with typed_errors(source), source.connect() as connection:
            slot, now = slot_facts(connection, config.get("slot.name", "")), clock(connection)
    times = [offset.at for offset in committed_offsets(client, status.name)]
    newest = max((at for at in times if at is not None), default=None)
    age = None if newest is None else max(0.0, (now - newest).total_seconds())
    advice = advice_on(status.failure[1], config) if status.failure else ()
    return ConnectorHealth(status, slot, age, well=is_well(status, config), advice=advice)


def committed_offsets(client: ConnectClient, name: str) -> tuple[SourceOffset, ...]:
    """Return how far a connector has come; nothing for one that failed at its start, which does not tell."""
    try:
        return client.offsets(name)
    except UnknownConnector:
        raise
    except ConnectRejected:
        return ()
