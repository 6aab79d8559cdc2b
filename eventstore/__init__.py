"""Commands become events, events become topic records, and any service may subscribe.

Names are loaded when first used: importing this package starts nothing and loads no third-party client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventstore.aggregate import Aggregate, command
    from eventstore.backends.sql.store import SqlEventStore
    from eventstore.dispatcher import Accepted, Dispatcher, Refusal
    from eventstore.errors import FactfoldError, Refused, WrongExpectedVersion
    from eventstore.event_types import event
    from eventstore.field_types import Digits
    from eventstore.identifiers import ANY, NO_STREAM, STREAM_EXISTS, ExpectedVersion, Position, StreamName
    from eventstore.messages import Command, Metadata, NewEvent, RecordedEvent
    from eventstore.schema_registry import RegisteredSchema, SchemaRegistry
    from eventstore.settings import KafkaSettings, Settings
    from eventstore.store import AppendResult, Category, EventStore, StreamAppend

__all__ = [
    "ANY",
    "NO_STREAM",
    "STREAM_EXISTS",
    "Accepted",
    "Aggregate",
    "AppendResult",
    "Category",
    "Command",
    "Digits",
    "Dispatcher",
    "EventStore",
    "ExpectedVersion",
    "FactfoldError",
    "KafkaSettings",
    "Metadata",
    "NewEvent",
    "Position",
    "RecordedEvent",
    "Refusal",
    "Refused",
    "RegisteredSchema",
    "SchemaRegistry",
    "Settings",
    "SqlEventStore",
    "StreamAppend",
    "StreamName",
    "WrongExpectedVersion",
    "command",
    "event",
]

_HOMES = {
    "aggregate": ("Aggregate", "command"),
    "backends.sql.store": ("SqlEventStore",),
    "dispatcher": ("Accepted", "Dispatcher", "Refusal"),
    "errors": ("FactfoldError", "Refused", "WrongExpectedVersion"),
    "event_types": ("event",),
    "field_types": ("Digits",),
    "identifiers": ("ANY", "NO_STREAM", "STREAM_EXISTS", "ExpectedVersion", "Position", "StreamName"),
    "messages": ("Command", "Metadata", "NewEvent", "RecordedEvent"),
    "schema_registry": ("RegisteredSchema", "SchemaRegistry"),
    "settings": ("KafkaSettings", "Settings"),
    "store": ("AppendResult", "Category", "EventStore", "StreamAppend"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"eventstore.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
