"""How a connector does: its states in Connect, its slot in the source, how old the last change is that it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc.catalogue import ReplicationSlot, clock, slot_facts, typed_errors
from cdc.connectors.base import Connector
from cdc.errors import ConnectRejected, UnknownConnector
from cdc.oversized_rows import advice_on
from cdc.status import ConnectorStatus, SourceOffset, is_well

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Engine

    from cdc.connect import ConnectClient


@dataclass(frozen=True, slots=True)
class ConnectorHealth:
    """A connector's states, its replication slot, and the age of its last event in seconds.

    The last event is the newest transaction of the source that came out of the connector and whose offset is committed.
    Its age runs from its commit, by the source's clock where there is one to ask. Rows of a snapshot have the
    snapshot's time. A source at rest makes it old without anything being wrong: then the slot is active and its lag
    stays small, since heartbeats move the slot and are no events. ``slot`` is None without a source, or where the
    source has no such slot. ``last_event_age`` where no event has come yet. ``well`` says whether it runs with all its
    tasks. A connector of MirrorMaker may have none, as long as no topic or group matches. ``advice`` is about a row
    that is larger than a request: its tables, the SQL that finds it, the remedy.
    """

    status: ConnectorStatus
    slot: ReplicationSlot | None = None
    last_event_age: float | None = None
    well: bool = False
    advice: tuple[str, ...] = ()


def health(client: ConnectClient, connector: Connector | str, *, source: Engine | None = None) -> ConnectorHealth:
    """Look at one connector, and at its slot where `source`, an engine of its database, is given. Changes nothing.

    Raises UnknownConnector, also for one so new that Connect has no state of it yet. Raises SourceNotReady or
    ConnectUnavailable.
    """
    name = connector if isinstance(connector, str) else connector.name
    status = client.status(name)
    return _health(client, status, client.config(name), source=source)


def healths(
    client: ConnectClient, names: Iterable[str] | None = None, *, source: Engine | None = None
) -> tuple[ConnectorHealth, ...]:
    """Look at several connectors, in their order, or at all of the cluster, by name. As `health`."""
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
