"""Records of event topics as a subscriber takes them: decoded, or with the reason why they cannot be read."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from confluent_kafka import Message

from eventstore.delivery.subscriptions import Subscription
from eventstore.erasure import PersonalData
from eventstore.errors import FactfoldError, ForeignRecord, SchemaError
from eventstore.fields.serialization import AvroDecoder, schema_id_of
from eventstore.kafka.consumer import PassedOver, TopicSchemas
from eventstore.personal.sealing import Origin
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import RecordedEvent
from eventstore.topics import event_of, not_an_event, require_source

RETRY_PREFIX: Final = "retry_"


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt: not before `due`, the `number`-th, after `attempts` calls of the handler."""

    due: datetime
    number: int
    attempts: int
    topic: str
    partition: int
    offset: int

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Return the headers that the record has in addition to its own."""
        fields = asdict(self) | {"due": self.due.isoformat()}
        return tuple((f"{RETRY_PREFIX}{name}", str(value).encode()) for name, value in fields.items())


def retry_of(headers: Iterable[tuple[str, bytes | None]]) -> Retry | None:
    """Read the headers of a record, None without such. ValueError if they are not what `headers` wrote.

    A replay of dead letters writes no such headers, and its records are due at once.
    """
    fields = {name.removeprefix(RETRY_PREFIX): value for name, value in headers if name.startswith(RETRY_PREFIX)}
    if not fields:
        return None
    texts = {name: (value or b"").decode() for name, value in fields.items()}
    try:
        due = datetime.fromisoformat(texts["due"])
        number, attempts, partition, offset = (int(texts[n]) for n in ("number", "attempts", "partition", "offset"))
        retry = Retry(due, number, attempts, texts["topic"], partition, offset)
    except KeyError as missing:
        raise ValueError(f"{RETRY_PREFIX}{missing.args[0]}") from missing
    if due.tzinfo is None:
        raise ValueError(f"{RETRY_PREFIX}due {texts['due']!r}, which has no zone")
    return retry


@dataclass(slots=True)
class KafkaArrival:
    """One record with what it holds, or with the reason why that cannot be read.

    `topic` is the one that it was published in, for a record of a retry topic too.
    """

    message: Message | PassedOver
    type: str | None = None
    id: str = ""
    schema: RegisteredSchema | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: FactfoldError | None = None
    opened: bool = False
    topic: str = ""
    retry: Retry | None = None
    deliveries: int = 1

    @property
    def schema_version(self) -> int:
        """The version of the class that wrote it."""
        return 1 if self.schema is None else self.schema.version

    @property
    def place(self) -> str:
        """Topic, partition and offset."""
        return f"{self.message.topic()}[{self.message.partition()}]@{self.offset}"

    @property
    def key(self) -> str:
        """The event's stream, else the record's own key."""
        stream = dict(headers_of(self.message)).get("ce_subject") or self.message.key() or b""
        return stream if isinstance(stream, str) else stream.decode(errors="replace")

    @property
    def retries(self) -> int:
        """How often the record was put off."""
        return self.deliveries - 1 if self.retry is None else self.retry.number

    @property
    def offset(self) -> int:
        """The record's offset, the first one of records that cannot be unpacked."""
        message = self.message
        return message.first if isinstance(message, PassedOver) else message.offset() or 0

    @property
    def origin(self) -> Origin:
        """The event that the record is; NotFramedAvro where its headers name no stream."""
        stream = dict(headers_of(self.message)).get("ce_subject")
        if stream is None:
            raise not_an_event("its headers lack 'ce_subject'", self.place)
        return Origin(stream.decode(errors="replace"), self.id)

    def recorded(self) -> RecordedEvent:
        """Return the event as it was recorded; NotFramedAvro where headers are missing."""
        if self.schema is None:
            raise not_an_event("it was not decoded", self.place)
        return event_of(headers_of(self.message), schema=self.schema, data=self.data, place=self.place)


class ArrivalReader:
    """Reads what a subscription takes of records; others are decoded no further than their headers."""

    def __init__(self, subscription: Subscription[..., Any], schemas: TopicSchemas, personal: PersonalData) -> None:
        self._source = subscription.source
        self._types = subscription.signature.types
        self._schemas = schemas
        self._decoder = AvroDecoder(schemas.schema)
        self._personal = personal

    def read(self, message: Message, topic: str, *, again: bool = False) -> KafkaArrival:
        """Return what a record of a topic holds; `again` says that it comes from the retry topic."""
        try:
            retry = retry_of(headers_of(message)) if again else None
        except ValueError as error:
            arrival = self._unreadable(message, not_an_event(f"its headers lack or misstate {error}", ""))
        else:
            arrival = self._read(message)
            arrival.retry = retry
        arrival.topic = topic
        return arrival

    def _read(self, message: Message) -> KafkaArrival:
        value = message.value()
        if value is None:
            # The event of a deleted stream: there is nothing left to handle.
            return KafkaArrival(message)
        try:
            headers = cast("dict[str, bytes]", dict(headers_of(message)))
            if self._source is not None:
                require_source(headers.items(), self._source, place="")
            kind, event_id = headers["ce_type"].decode(), _hexadecimal(headers["ce_id"])
            if self._types is not None and kind not in self._types:
                # A body that no handler takes is not decoded.
                self._check_known(kind, value)
                return KafkaArrival(message)
            schema, data = self._decoder.decode(value)
        except (SchemaError, ForeignRecord) as problem:
            return self._unreadable(message, problem)
        except (KeyError, ValueError, AttributeError) as error:
            return self._unreadable(message, not_an_event(f"its headers lack or misstate {error}", ""))
        return KafkaArrival(message, kind, event_id, schema, data)

    def opened(self, arrivals: Sequence[KafkaArrival]) -> Sequence[KafkaArrival]:
        """The batch, its personal values opened now and not when it was fetched: a subject may have been erased."""
        held = [a for a in arrivals if a.schema is not None and a.schema.personal and not a.opened]
        try:
            self._open(held)
        except SchemaError:
            for arrival in held:
                try:
                    self._open([arrival])
                except SchemaError as problem:
                    arrival.problem = problem
        return arrivals

    def _open(self, arrivals: Sequence[KafkaArrival]) -> None:
        decoded = [(a.schema, dict(a.data), a.origin) for a in arrivals if a.schema is not None]
        for arrival, data in zip(arrivals, self._personal.disclose(decoded), strict=True):
            arrival.data, arrival.opened = data, True

    def _unreadable(self, message: Message, problem: FactfoldError) -> KafkaArrival:
        arrival = KafkaArrival(message, problem=problem)
        problem.place = problem.place or arrival.place
        return arrival

    def _check_known(self, kind: str, value: bytes) -> None:
        self._schemas.schema(schema_id_of(value))
        if not self._schemas.knows_type(kind):
            raise not_an_event(f"no schema belongs to its type {kind!r}", "")


def _hexadecimal(text: bytes) -> str:
    """Return an id in one spelling; ValueError where it is no UUID. A UUID object takes eight times as long."""
    number = unhexlify(text.replace(b"-", b""))
    if len(number) != 16:
        raise ValueError(f"ce_id {text!r}")
    return number.hex()


def headers_of(message: Message | PassedOver) -> list[tuple[str, bytes | None]]:
    """Return a record's headers."""
    # The client hands bytes out as it got them; its types allow for what a producer may put in.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])
