"""The event store and its relay, as `store status` and `relay status` print them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eventstore.errors import StoreNotPrepared
from factfold.cli.events.store import StoreStanding, store_standing
from factfold.cli.service.relay import RelayStanding, relay_standing
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.schema_registry import RegisteredSchema
    from factfold.console.definitions import Definitions


def read_store(clients: Clients) -> StoreStanding:
    """Look at the event store. Raises StoreNotPrepared if its tables are missing or older."""
    standing = store_standing(clients.store)
    version = standing.version
    if not version.is_current:
        raise StoreNotPrepared(
            f"the store's tables have version {version.installed or 'none'}, this release needs {version.newest}",
            remedy="factfold store migrate",
        )
    return standing


def topics_of(definitions: Definitions, store: StoreStanding | None) -> dict[str, str]:
    """Return the topic of each category, as the store has it; what it does not have yet as its definitions say."""
    tables = (table for group in definitions.groups.values() for table in group.tables.values())
    events = (table for table in tables if getattr(table, "aggregate", None) is not None)
    declared = {table.aggregate.category: table.topic for table in events}  # type: ignore[attr-defined]
    return declared | ({one.name: one.topic for one in store.categories} if store else {})


def read_schemas(clients: Clients) -> tuple[RegisteredSchema, ...]:
    """Return every registered schema."""
    return tuple(clients.store.schemas())


STORE: Final = Reading(read_store)
SCHEMAS: Final = Reading(read_schemas)


def read_relay(clients: Clients) -> RelayStanding | None:
    """Return how the relay stands; None for a service without Kafka or with Kafka Connect, which needs none."""
    if not clients.places.kafka or clients.places.connect_url is not None:
        return None
    standing = relay_standing(clients.store, clients.settings)
    ends = clients.offsets.end_offsets(clients.offsets.existing(one.topic for one in standing.categories))
    note = clients.trends.note
    note("relay relay", standing.seconds)
    note("relay relay waiting", float(standing.events))
    note("relay relay published", float(sum(end for partitions in ends.values() for end in partitions.values())))
    return standing


RELAY: Final = Reading(read_relay, rest=10.0)
