"""A service as an AsyncAPI 3.0 document: its topics, events, commands, branches and subscriptions, from its classes.

channels      a topic each, with its key and partitions; the commands of an aggregate, which no topic carries
messages      an event each, with its Avro schema and CloudEvents headers; a command each, with its arguments
operations    send: the events of an aggregate, a branch; receive: a subscription, the commands of an aggregate
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eventstore.aggregates.aggregate import Aggregate, commands_of
from eventstore.aggregates.command_schemas import command_schema
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import DeclarationError
from eventstore.event_types import EventType
from eventstore.processes.process import Process, process_group
from eventstore.topics import DEFAULT_SOURCE, HEADER_COLUMNS, HEADER_CONSTANTS, SCHEMAS_TOPIC, topic_of_category

_VERSION: Final = "3.0.0"
_AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
_BINDINGS: Final = "0.5.0"
_MAYBE: Final = frozenset({"ce_correlationid", "ce_causationid", "traceparent"})
_KEY: Final = {
    "type": "string",
    "description": "stream@version: each event has a key of its own",
    "examples": ["order-1@0"],
}
_HEADERS: Final = "eventHeaders"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A topic whose events are put into branch topics: predicate and topic by the branch's name."""

    aggregate: type[Aggregate]
    topic: str
    topics: Mapping[str, str]
    predicates: Mapping[str, str]
    dead_letter_topic: str


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a service declares, for the document that describes it.

    Args:
        title: The service's name.
        version: The version of the document.
        source: The CloudEvents source, which names topics that `topics` leaves out.
        aggregates: Aggregates whose events the service publishes.
        subscriptions: Subscriptions of the service.
        routed: Branches that the service publishes.
        topics: The topics of categories, by category.
        partitions: The partition counts of topics, as far as they are known.
        servers: The addresses of brokers.

    Examples:
        >>> shop = Service(title="Shop", source="/shop", aggregates=[Order])
        >>> list(asyncapi(shop)["operations"])
        ['send.shop.order', 'receive.order.commands']
    """

    title: str
    version: str = "1.0.0"
    source: str = DEFAULT_SOURCE
    aggregates: Sequence[type[Aggregate]] = ()
    subscriptions: Sequence[Subscription[..., Any]] = ()
    routed: Sequence[Routed] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    servers: Sequence[str] = ()

    def topic_of(self, aggregate: type[Aggregate]) -> str:
        """Return the topic of an aggregate's events."""
        return self.topic_of_category(aggregate.category)

    def topic_of_category(self, category: str) -> str:
        """Return the topic of a category's events."""
        return self.topics.get(category) or topic_of_category(category, source=self.source)


def asyncapi(service: Service) -> Document:
    """Return the AsyncAPI document of a service as JSON values.

    Raises:
        DeclarationError: Two events have one type name, or the service declares nothing.

    Examples:
        >>> asyncapi(Service(title="Shop", aggregates=[Order]))["asyncapi"]
        '3.0.0'
    """
    if not (service.aggregates or service.subscriptions or service.routed):
        raise DeclarationError(
            "there is nothing to describe",
            remedy="name aggregates, subscriptions or branches, or modules that have some",
        )
    written = _Writing(service)
    document: Document = {
        "asyncapi": _VERSION,
        "info": {"title": service.title, "version": service.version, "x-schemas-topic": SCHEMAS_TOPIC},
        "defaultContentType": "application/avro",
        "channels": written.channels,
        "operations": written.operations,
        "components": {"messages": written.messages, "schemas": {_HEADERS: _headers(), **written.schemas}},
    }
    if service.servers:
        document["servers"] = {
            f"kafka{n}": {"host": host, "protocol": "kafka"} for n, host in enumerate(service.servers, 1)
        }
    # Shared parts become parts of their own: YAML would write references of another kind.
    return dict(json.loads(json.dumps(document)))


class _Writing:
    """The parts of a document as they grow."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kinds: dict[str, EventType] = {}
        self.channels: Document = {}
        self.operations: Document = {}
        self.messages: Document = {}
        self.schemas: Document = {}
        for aggregate in service.aggregates:
            self._events(aggregate)
            self._commands(aggregate)
        for process in service.aggregates:
            if issubclass(process, Process):
                self._process(process)
        for routed in service.routed:
            self._branches(routed)
        for subscription in service.subscriptions:
            self._subscription(subscription)

    def _events(self, aggregate: type[Aggregate]) -> None:
        topic = self._service.topic_of(aggregate)
        self._topic(topic, aggregate.event_types.values(), f"Every event of {aggregate.category}, in order by stream.")
        self._operation(f"send.{topic}", "send", topic, summary=f"Events of {aggregate.__qualname__}.")

    def _commands(self, aggregate: type[Aggregate]) -> None:
        channel = f"{aggregate.category}.commands"
        names = []
        for name, method in commands_of([aggregate]).items():
            message, schemas = command_schema(name, method)
            self.messages[f"command.{name}"] = message
            self.schemas |= schemas
            names.append(f"command.{name}")
        if names:
            self.channels[channel] = {
                "address": None,
                "description": "Commands are sent within the service, by a Dispatcher: no topic carries them.",
                "messages": {name: _ref("components/messages", name) for name in names},
            }
            self._operation(f"receive.{channel}", "receive", channel, summary=f"Commands of {aggregate.__qualname__}.")

    def _process(self, process: type[Process]) -> None:
        """A process receives the events it reacts to, and sends commands within the service or its store."""
        for category in sorted(process.reactions.categories):
            topic = self._service.topic_of_category(category)
            kinds = {one.name: one for one in process.reactions.kinds.values() if one.name.startswith(f"{category}.")}
            self._topic(topic, kinds.values(), f"Read by {process.category}.")
            group = process_group(process)
            extensions = {"x-process": process.category, "x-sends": sorted(process.commands_sent)}
            self._operation(
                f"receive.{group}.{topic}",
                "receive",
                topic,
                messages=list(kinds),
                summary=f"{process.__qualname__}, effectively once.",
                bindings=_group(group),
                **extensions,
            )

    def _branches(self, routed: Routed) -> None:
        kinds = list(routed.aggregate.event_types.values())
        self._topic(routed.topic, kinds, f"Every event of {routed.aggregate.category}, in order by stream.")
        for branch, topic in routed.topics.items():
            why = routed.predicates.get(branch, "no other branch takes it")
            self._topic(topic, kinds, f"Records of {routed.topic} of which {why} holds.")
            extensions = {
                "x-branch-of": routed.topic,
                "x-branch": branch,
                "x-dead-letter-topic": routed.dead_letter_topic,
            }
            self._operation(f"send.{topic}", "send", topic, summary=f"Branch {branch} of {routed.topic}.", **extensions)

    def _subscription(self, subscription: Subscription[..., Any]) -> None:
        taken = subscription.signature.types
        kinds = {} if taken is None else {kind.name: kind for kind in taken.values()}
        topics = subscription.chosen([name for name, one in self.channels.items() if one["address"] is not None])
        for topic in topics:
            self._topic(topic, kinds.values(), f"Read by {subscription.group}.")
            known = [name for name in self.channels[topic]["messages"] if taken is None or name in kinds]
            self._receive(subscription, topic, known)
        if not topics:
            channel = f"{subscription.group}.pattern"
            self.channels[channel] = {"address": None, "description": f"{subscription.reads}.", "messages": {}}
            self._receive(subscription, channel, [])

    def _receive(self, subscription: Subscription[..., Any], channel: str, messages: Sequence[str]) -> None:
        self._operation(
            f"receive.{subscription.group}.{channel}",
            "receive",
            channel,
            messages=messages,
            summary=f"{subscription.name}, {subscription.guarantee.replace('-', ' ')}.",
            bindings=_group(subscription.group),
            **{"x-guarantee": subscription.guarantee},
        )

    def _topic(self, topic: str, kinds: Iterable[EventType], description: str) -> None:
        """Describe a topic, or add messages to one that is described."""
        channel = self.channels.setdefault(
            topic, {"address": topic, "description": description, "messages": {}, "bindings": self._binding(topic)}
        )
        for kind in kinds:
            self._message(kind)
            channel["messages"][kind.name] = _ref("components/messages", kind.name)

    def _binding(self, topic: str) -> Document:
        partitions = self._service.partitions.get(topic)
        counted = {} if partitions is None else {"partitions": partitions}
        return {"kafka": {"topic": topic, **counted, "bindingVersion": _BINDINGS}}

    def _message(self, kind: EventType) -> None:
        if self._kinds.setdefault(kind.name, kind).schema != kind.schema:
            raise DeclarationError(
                f"two events of different schemas are named {kind.name!r}",
                remedy="describe the services in a document each",
                place=kind.cls.__qualname__,
            )
        self.messages[kind.name] = _event_message(kind)

    def _operation(self, name: str, action: str, channel: str, **more: Any) -> None:
        names = more.pop("messages", None) or list(self.channels[channel]["messages"])
        operation = {"action": action, "channel": _ref("channels", channel), **more}
        if name in self.operations:
            raise DeclarationError(
                f"two of the service's parts are the operation {name!r}",
                remedy="give each subscription to a topic its own group, each aggregate its own category",
                place=name,
            )
        # A topic without declared messages may carry any message.
        listed = {"messages": [_ref(f"channels/{channel}/messages", one) for one in names]} if names else {}
        self.operations[name] = operation | listed


def _event_message(kind: EventType) -> Document:
    personal = [one.name for one in kind.personal]
    schema = dict(kind.schema)
    schema["fields"] = [
        {**one, "x-personal": True} if one["name"] in personal else dict(one) for one in kind.schema["fields"]
    ]
    return {
        "name": kind.name,
        "title": kind.cls.__name__,
        **_summary(kind.cls),
        "contentType": "application/avro",
        "headers": _ref("components/schemas", _HEADERS),
        "correlationId": {"location": "$message.header#/ce_correlationid"},
        "payload": {"schemaFormat": _AVRO, "schema": schema},
        "bindings": {"kafka": {"key": _KEY, "schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent",
                               "bindingVersion": _BINDINGS}},
        "x-schema-version": kind.version,
        "x-schema-id": kind.schema_id,
        **({"x-personal": personal} if personal else {}),
    }  # fmt: skip


def _summary(cls: type) -> Document:
    """The first line that the author wrote of a class, and not the one that dataclasses make."""
    lines = (cls.__doc__ or "").strip().splitlines()
    return {} if not lines or lines[0].startswith(f"{cls.__name__}(") else {"summary": lines[0]}


def _headers() -> Document:
    constants = {name: {"type": "string", "const": value} for name, value in HEADER_CONSTANTS}
    named = dict(_header_types())
    return {
        "type": "object",
        "description": "CloudEvents 1.0 in the headers of a Kafka record (binary mode).",
        "required": [name for name in (*constants, *named) if name not in _MAYBE],
        "properties": {**constants, **named},
    }


def _header_types() -> Iterator[tuple[str, Document]]:
    details: Mapping[str, Document] = {
        "ce_id": {"format": "uuid"},
        "ce_time": {"format": "date-time"},
        "ce_subject": {"description": "the stream: category-id"},
        "ce_streamversion": {"description": "the version in the stream, from 0 on", "pattern": "^[0-9]+$"},
        "ce_position": {"description": "the place in the store", "pattern": "^[0-9]+$"},
        "ce_correlationid": {"description": "the conversation"},
        "ce_causationid": {"description": "the command that led to the event, or the event it follows"},
    }
    for _, header in HEADER_COLUMNS:
        yield header, {"type": "string", **details.get(header, {})}


def _group(name: str) -> Document:
    return {"kafka": {"groupId": {"type": "string", "enum": [name]}}}


def _ref(folder: str, name: str) -> Document:
    return {"$ref": f"#/{folder}/{name}"}
