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
    from collections.abc import Iterable

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
        >>> current = health(client, rows, source=engine)
        >>> current.well, current.last_event_age, current.slot.lag_bytes
        (True, 3.2, 1216)
    """

    status: ConnectorStatus
    slot: ReplicationSlot | None = None
    last_event_age: float | None = None
    well: bool = False
    advice: tuple[str, ...] = ()


def health(client: ConnectClient, connector: Connector | str, *, source: Engine | None = None) -> ConnectorHealth:
    """Return the health of a connector, and change nothing.

    Args:
        client: The worker.
        connector: The connector or its name.
        source: An engine of its database, for the replication slot.

    Raises:
        UnknownConnector: Connect does not know it, or has no state of it yet.
        SourceNotReady: The source cannot be asked.
        ConnectUnavailable: No worker answered.

    Examples:
        >>> health(client, rows, source=engine).well
        True
    """
    name = connector if isinstance(connector, str) else connector.name
    status = client.status(name)
    return _health(client, status, client.config(name), source=source)


def healths(
    client: ConnectClient, names: Iterable[str] | None = None, *, source: Engine | None = None
) -> tuple[ConnectorHealth, ...]:
    """Return the health of several connectors in their order, by default of all, by name. See `health`.

    Examples:
        >>> [one.status.name for one in healths(client, source=engine) if not one.well]
        []
    """
    if names is not None:
        return tuple(health(client, name, source=source) for name in names)
    overview = client.overview().values()
    return tuple(_health(client, status, info.config, source=source) for info, status in overview)


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
