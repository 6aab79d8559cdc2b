"""Commands become events, events become topic records, and any service may subscribe.

Names are loaded when first used: importing this package starts nothing and loads no third-party client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventstore.aggregate import Aggregate, command
    from eventstore.async_dispatcher import AsyncDispatcher
    from eventstore.backends.memory import MemoryEventStore
    from eventstore.backends.sql.async_store import AsyncSqlEventStore
    from eventstore.backends.sql.keys import SqlKeyStore
    from eventstore.backends.sql.store import SqlEventStore
    from eventstore.backends.sql.tenants import tenant_store, tenants
    from eventstore.delivery.async_subscriber import AsyncSubscriber
    from eventstore.delivery.attempt import DeliveryReport
    from eventstore.delivery.source import Arrival, DeadLetter, Lag, Source
    from eventstore.delivery.subscriber import Subscriber
    from eventstore.dispatcher import Accepted, Dispatcher, Refusal
    from eventstore.erasure import DataKey, Erasure, FollowedKeys, KeyStore, MasterKeys, new_data_key
    from eventstore.errors import FactfoldError, Refused, WrongExpectedVersion
    from eventstore.event_types import event
    from eventstore.field_types import Digits
    from eventstore.functional import FunctionalAggregate, decider
    from eventstore.identifiers import ANY, NO_STREAM, STREAM_EXISTS, ExpectedVersion, Position, StreamName
    from eventstore.messages import Command, Metadata, NewEvent, RecordedEvent
    from eventstore.personal import Personal
    from eventstore.relay import Relay, RelayReport, RelayStatus, relay_status
    from eventstore.schema_registry import RegisteredSchema, SchemaRegistry
    from eventstore.settings import KafkaSettings, Settings
    from eventstore.store import AppendResult, Category, EventStore, StreamAppend
    from eventstore.subscribing import open_async_subscriber, open_subscriber, run_subscription
    from eventstore.subscriptions import Subscription, subscription

__all__ = [
    "ANY",
    "NO_STREAM",
    "STREAM_EXISTS",
    "Accepted",
    "Aggregate",
    "AppendResult",
    "Arrival",
    "AsyncDispatcher",
    "AsyncSqlEventStore",
    "AsyncSubscriber",
    "Category",
    "Command",
    "ConfluentRegistry",
    "DataKey",
    "DeadLetter",
    "DeliveryReport",
    "Digits",
    "Dispatcher",
    "Erasure",
    "EventStore",
    "ExpectedVersion",
    "FactfoldError",
    "FollowedKeys",
    "FunctionalAggregate",
    "KafkaSettings",
    "KeyStore",
    "Lag",
    "MasterKeys",
    "MemoryEventStore",
    "Metadata",
    "NewEvent",
    "Personal",
    "Position",
    "RecordedEvent",
    "Refusal",
    "Refused",
    "RegisteredSchema",
    "RegistrySettings",
    "Relay",
    "RelayReport",
    "RelayStatus",
    "SchemaRegistry",
    "Settings",
    "Source",
    "SqlEventStore",
    "SqlKeyStore",
    "StreamAppend",
    "StreamName",
    "Subscriber",
    "Subscription",
    "WrongExpectedVersion",
    "command",
    "configured_registry",
    "decider",
    "event",
    "new_data_key",
    "open_async_subscriber",
    "open_subscriber",
    "relay_status",
    "run_subscription",
    "subscription",
    "tenant_store",
    "tenants",
]

_HOMES = {
    "aggregate": ("Aggregate", "command"),
    "async_dispatcher": ("AsyncDispatcher",),
    "backends.memory": ("MemoryEventStore",),
    "backends.sql.async_store": ("AsyncSqlEventStore",),
    "backends.sql.keys": ("SqlKeyStore",),
    "backends.sql.store": ("SqlEventStore",),
    "backends.sql.tenants": ("tenant_store", "tenants"),
    "delivery.async_subscriber": ("AsyncSubscriber",),
    "delivery.attempt": ("DeliveryReport",),
    "delivery.source": ("Arrival", "DeadLetter", "Lag", "Source"),
    "delivery.subscriber": ("Subscriber",),
    "dispatcher": ("Accepted", "Dispatcher", "Refusal"),
    "erasure": ("DataKey", "Erasure", "FollowedKeys", "KeyStore", "MasterKeys", "new_data_key"),
    "errors": ("FactfoldError", "Refused", "WrongExpectedVersion"),
    "event_types": ("event",),
    "field_types": ("Digits",),
    "functional": ("FunctionalAggregate", "decider"),
    "identifiers": ("ANY", "NO_STREAM", "STREAM_EXISTS", "ExpectedVersion", "Position", "StreamName"),
    "kafka.confluent_registry": ("ConfluentRegistry", "configured_registry"),
    "messages": ("Command", "Metadata", "NewEvent", "RecordedEvent"),
    "relay": ("Relay", "RelayReport", "RelayStatus", "relay_status"),
    "personal": ("Personal",),
    "schema_registry": ("RegisteredSchema", "SchemaRegistry"),
    "settings": ("KafkaSettings", "RegistrySettings", "Settings"),
    "store": ("AppendResult", "Category", "EventStore", "StreamAppend"),
    "subscribing": ("open_async_subscriber", "open_subscriber", "run_subscription"),
    "subscriptions": ("Subscription", "subscription"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"eventstore.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
