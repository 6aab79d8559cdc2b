"""Commands become events, events become topic records, and any service may subscribe.

Names are loaded when first used: importing this package starts nothing and loads no third-party client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eventstore.extras import import_with_extras

if TYPE_CHECKING:
    from eventstore.aggregate import Aggregate, command
    from eventstore.async_dispatcher import AsyncDispatcher, AsyncMiddleware, AsyncSend
    from eventstore.backends.memory import MemoryEventStore
    from eventstore.backends.sql.async_store import AsyncSqlEventStore
    from eventstore.backends.sql.keys import SqlKeyStore
    from eventstore.backends.sql.letters import store_letters
    from eventstore.backends.sql.replaying import Replay
    from eventstore.backends.sql.store import SqlEventStore
    from eventstore.backends.sql.tenants import tenant_store, tenants
    from eventstore.deadletters.causes import by_cause
    from eventstore.deadletters.letters import Letters
    from eventstore.deadletters.topic import group_letters
    from eventstore.delivery.async_subscriber import AsyncSubscriber
    from eventstore.delivery.attempt import DeliveryReport
    from eventstore.delivery.deliveries import Delivery
    from eventstore.delivery.source import Arrival, DeadLetter, Lag, Source
    from eventstore.delivery.subscriber import Subscriber
    from eventstore.dispatcher import Accepted, Dispatcher, Middleware, Refusal, Result, Send
    from eventstore.erasure import DataKey, Erasure, FollowedKeys, KeyStore, MasterKeys, new_data_key
    from eventstore.errors import (
        BrokerRefused,
        BrokerUnreachable,
        CheckpointMoved,
        CommandIdTaken,
        DeadLetterError,
        DeclarationError,
        EventIdTaken,
        EventsNotFound,
        EventTooLarge,
        FactfoldError,
        ForeignRecord,
        GroupActive,
        HandlerHung,
        ImportConflict,
        InvalidAppend,
        InvalidBound,
        InvalidEventData,
        InvalidExport,
        InvalidIdentifier,
        InvalidSeal,
        InvalidSettings,
        KafkaError,
        KeysMissing,
        LetterMissing,
        NewerEvent,
        NotFramedAvro,
        OffsetsGone,
        OutboxConnectorFound,
        OutcomeUnknown,
        PartitionsFixed,
        ProducerFenced,
        RecordsUnreadable,
        Refused,
        RegistryRefused,
        RegistryUnreachable,
        RelayError,
        ReplayRefused,
        SchemaConflict,
        SchemaError,
        SchemaIncompatible,
        StoreNewer,
        StoreNotPrepared,
        StoreRestored,
        StoreUnavailable,
        StreamArchived,
        StreamDeleted,
        SubscriptionError,
        SubscriptionGaveUp,
        TopicMismatch,
        TopicMissing,
        TopicNotRelayed,
        TransactionBroken,
        UnknownAggregate,
        UnknownEventType,
        UnknownHandler,
        UnknownSchema,
        UnsupportedBackend,
        UnsupportedFieldType,
        WrongExpectedVersion,
    )
    from eventstore.event_types import event
    from eventstore.field_types import Digits
    from eventstore.functional import FunctionalAggregate, decider
    from eventstore.identifiers import ANY, NO_STREAM, STREAM_EXISTS, ExpectedVersion, Position, StreamName
    from eventstore.inspection.entries import Entry
    from eventstore.inspection.selection import Selection
    from eventstore.inspection.store_log import StoreLog
    from eventstore.inspection.stream_states import stream_state
    from eventstore.inspection.tracing import trace
    from eventstore.kafka.confluent_registry import ConfluentRegistry, configured_registry
    from eventstore.kafka.entries import TopicLog
    from eventstore.messages import Command, Metadata, NewEvent, RecordedEvent
    from eventstore.middleware import logged, required, traced
    from eventstore.personal import Personal
    from eventstore.relay import Relay, RelayReport, RelayStatus, relay_status
    from eventstore.restarts import Restarts
    from eventstore.schema_registry import RegisteredSchema, SchemaRegistry
    from eventstore.settings import KafkaSettings, RegistrySettings, Settings
    from eventstore.snapshots import AggregateSnapshot, Snapshots, SnapshotStore
    from eventstore.store import AppendResult, Category, EventStore, FenceStatus, StoreVersion, StreamAppend, Streams
    from eventstore.subscribing import (
        open_async_subscriber,
        open_subscriber,
        run_async_subscription,
        run_subscription,
    )
    from eventstore.subscriptions import Subscription, queue, subscription
    from eventstore.upcasting import Cast, Default, Drop, Rename, Retype

__all__ = [
    "ANY",
    "NO_STREAM",
    "STREAM_EXISTS",
    "Accepted",
    "Aggregate",
    "AggregateSnapshot",
    "AppendResult",
    "Arrival",
    "AsyncDispatcher",
    "AsyncMiddleware",
    "AsyncSend",
    "AsyncSqlEventStore",
    "AsyncSubscriber",
    "BrokerRefused",
    "BrokerUnreachable",
    "Cast",
    "Category",
    "CheckpointMoved",
    "Command",
    "CommandIdTaken",
    "ConfluentRegistry",
    "DataKey",
    "DeadLetter",
    "DeadLetterError",
    "DeclarationError",
    "Default",
    "Delivery",
    "DeliveryReport",
    "Digits",
    "Dispatcher",
    "Drop",
    "Entry",
    "Erasure",
    "EventIdTaken",
    "EventStore",
    "EventTooLarge",
    "EventsNotFound",
    "ExpectedVersion",
    "FactfoldError",
    "FenceStatus",
    "FollowedKeys",
    "ForeignRecord",
    "FunctionalAggregate",
    "GroupActive",
    "HandlerHung",
    "ImportConflict",
    "InvalidAppend",
    "InvalidBound",
    "InvalidEventData",
    "InvalidExport",
    "InvalidIdentifier",
    "InvalidSeal",
    "InvalidSettings",
    "KafkaError",
    "KafkaSettings",
    "KeyStore",
    "KeysMissing",
    "Lag",
    "LetterMissing",
    "Letters",
    "MasterKeys",
    "MemoryEventStore",
    "Metadata",
    "Middleware",
    "NewEvent",
    "NewerEvent",
    "NotFramedAvro",
    "OffsetsGone",
    "OutboxConnectorFound",
    "OutcomeUnknown",
    "PartitionsFixed",
    "Personal",
    "Position",
    "ProducerFenced",
    "RecordedEvent",
    "RecordsUnreadable",
    "Refusal",
    "Refused",
    "RegisteredSchema",
    "RegistryRefused",
    "RegistrySettings",
    "RegistryUnreachable",
    "Relay",
    "RelayError",
    "RelayReport",
    "RelayStatus",
    "Rename",
    "Replay",
    "ReplayRefused",
    "Restarts",
    "Result",
    "Retype",
    "SchemaConflict",
    "SchemaError",
    "SchemaIncompatible",
    "SchemaRegistry",
    "Selection",
    "Send",
    "Settings",
    "SnapshotStore",
    "Snapshots",
    "Source",
    "SqlEventStore",
    "SqlKeyStore",
    "StoreLog",
    "StoreNewer",
    "StoreNotPrepared",
    "StoreRestored",
    "StoreUnavailable",
    "StoreVersion",
    "StreamAppend",
    "StreamArchived",
    "StreamDeleted",
    "StreamName",
    "Streams",
    "Subscriber",
    "Subscription",
    "SubscriptionError",
    "SubscriptionGaveUp",
    "TopicLog",
    "TopicMismatch",
    "TopicMissing",
    "TopicNotRelayed",
    "TransactionBroken",
    "UnknownAggregate",
    "UnknownEventType",
    "UnknownHandler",
    "UnknownSchema",
    "UnsupportedBackend",
    "UnsupportedFieldType",
    "WrongExpectedVersion",
    "by_cause",
    "command",
    "configured_registry",
    "decider",
    "event",
    "group_letters",
    "logged",
    "new_data_key",
    "open_async_subscriber",
    "open_subscriber",
    "queue",
    "relay_status",
    "required",
    "run_async_subscription",
    "run_subscription",
    "store_letters",
    "stream_state",
    "subscription",
    "tenant_store",
    "tenants",
    "trace",
    "traced",
]

_HOMES = {
    "aggregate": (
        "Aggregate",
        "command",
    ),
    "async_dispatcher": (
        "AsyncDispatcher",
        "AsyncMiddleware",
        "AsyncSend",
    ),
    "backends.memory": ("MemoryEventStore",),
    "backends.sql.async_store": ("AsyncSqlEventStore",),
    "backends.sql.keys": ("SqlKeyStore",),
    "backends.sql.replaying": ("Replay",),
    "backends.sql.store": ("SqlEventStore",),
    "backends.sql.tenants": (
        "tenant_store",
        "tenants",
    ),
    "backends.sql.letters": ("store_letters",),
    "deadletters.causes": ("by_cause",),
    "deadletters.letters": ("Letters",),
    "deadletters.topic": ("group_letters",),
    "delivery.async_subscriber": ("AsyncSubscriber",),
    "delivery.attempt": ("DeliveryReport",),
    "delivery.deliveries": ("Delivery",),
    "delivery.source": (
        "Arrival",
        "DeadLetter",
        "Lag",
        "Source",
    ),
    "delivery.subscriber": ("Subscriber",),
    "dispatcher": (
        "Accepted",
        "Dispatcher",
        "Middleware",
        "Refusal",
        "Result",
        "Send",
    ),
    "erasure": ("DataKey", "Erasure", "FollowedKeys", "KeyStore", "MasterKeys", "new_data_key"),
    "event_types": ("event",),
    "field_types": ("Digits",),
    "functional": (
        "FunctionalAggregate",
        "decider",
    ),
    "identifiers": (
        "ANY",
        "ExpectedVersion",
        "NO_STREAM",
        "Position",
        "STREAM_EXISTS",
        "StreamName",
    ),
    "inspection.entries": ("Entry",),
    "inspection.selection": ("Selection",),
    "inspection.store_log": ("StoreLog",),
    "inspection.stream_states": ("stream_state",),
    "inspection.tracing": ("trace",),
    "kafka.confluent_registry": (
        "ConfluentRegistry",
        "configured_registry",
    ),
    "kafka.entries": ("TopicLog",),
    "messages": (
        "Command",
        "Metadata",
        "NewEvent",
        "RecordedEvent",
    ),
    "middleware": (
        "logged",
        "required",
        "traced",
    ),
    "personal": ("Personal",),
    "relay": (
        "Relay",
        "RelayReport",
        "RelayStatus",
        "relay_status",
    ),
    "schema_registry": (
        "RegisteredSchema",
        "SchemaRegistry",
    ),
    "settings": (
        "KafkaSettings",
        "RegistrySettings",
        "Settings",
    ),
    "snapshots": (
        "AggregateSnapshot",
        "SnapshotStore",
        "Snapshots",
    ),
    "store": (
        "AppendResult",
        "Category",
        "EventStore",
        "FenceStatus",
        "StoreVersion",
        "StreamAppend",
        "Streams",
    ),
    "restarts": ("Restarts",),
    "subscribing": (
        "open_async_subscriber",
        "open_subscriber",
        "run_async_subscription",
        "run_subscription",
    ),
    "subscriptions": (
        "Subscription",
        "queue",
        "subscription",
    ),
    "upcasting": (
        "Cast",
        "Default",
        "Drop",
        "Rename",
        "Retype",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_with_extras(f"eventstore.{module}"), name)
    if name in __all__:  # every error is here
        return getattr(import_module("eventstore.errors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
