"""A topic read as a member of a group: partitions come and go, offsets are committed after the effects."""

from __future__ import annotations

import time
from binascii import unhexlify
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from eventstore.delivery.source import DeadLetter, Lag
from eventstore.erasure import KeyStore, Origin, PersonalData
from eventstore.errors import BrokerRefused, FactfoldError, ForeignRecord, OffsetsGone, SchemaError, TopicMissing
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, broker_unreachable, ensure_topics, typed_errors
from eventstore.kafka.batches import PassedOver, is_unreadable, unreadable
from eventstore.kafka.consumer import OUT_OF_RANGE, PASSING, close_consumer, end_of_batch
from eventstore.kafka.groups import group_lag
from eventstore.kafka.places import Places, start_places
from eventstore.kafka.producer import OutgoingRecord, RecordProducer, is_too_large
from eventstore.kafka.schemas import TopicSchemas
from eventstore.messages import RecordedEvent
from eventstore.restarts import PATIENCE_SECONDS
from eventstore.schema_registry import RegisteredSchema
from eventstore.serialization import AvroDecoder, schema_id_of
from eventstore.settings import Settings
from eventstore.subscriptions import Subscription
from eventstore.topics import (
    DEAD_LETTER_OMITTED,
    DEAD_LETTER_PREFIX,
    dead_letter_headers,
    dead_letter_topic,
    event_of,
    not_an_event,
    require_source,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

# A handler may work for its whole timeout while the group waits for us to give partitions back.
_POLL_MARGIN_SECONDS: Final = 240.0


@dataclass(slots=True)
class KafkaArrival:
    """One record with what it holds, or with the reason why that cannot be read."""

    message: Message | PassedOver
    type: str | None = None
    id: str = ""
    schema: RegisteredSchema | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: FactfoldError | None = None
    opened: bool = False

    @property
    def schema_version(self) -> int:
        """The version of the class that wrote it."""
        return 1 if self.schema is None else self.schema.version

    @property
    def place(self) -> str:
        """Topic, partition and offset."""
        return f"{self.message.topic()}[{self.message.partition()}]@{self.offset}"

    @property
    def offset(self) -> int:
        """The record's offset, the first one of records that cannot be unpacked."""
        message = self.message
        return message.first if isinstance(message, PassedOver) else message.offset() or 0

    @property
    def origin(self) -> Origin:
        """The event that the record is; NotFramedAvro where its headers name no stream."""
        stream = dict(_headers(self.message)).get("ce_subject")
        if stream is None:
            raise not_an_event("its headers lack 'ce_subject'", self.place)
        return Origin(stream.decode(errors="replace"), self.id)

    def recorded(self) -> RecordedEvent:
        """Return the event as it was recorded; NotFramedAvro where headers are missing."""
        if self.schema is None:
            raise not_an_event("it was not decoded", self.place)
        return event_of(_headers(self.message), schema=self.schema, data=self.data, place=self.place)


class KafkaSource:
    """A subscription's topic as a source; members of its group share the partitions."""

    def __init__(
        self,
        subscription: Subscription[..., Any],
        settings: Settings,
        *,
        deadline: float = DEADLINE_SECONDS,
        patience: float = PATIENCE_SECONDS,
        keys: KeyStore | None = None,
    ) -> None:
        self._subscription = subscription
        self._topic = subscription.topic
        self._types = subscription.signature.types
        self._settings = settings
        self._servers = settings.kafka.bootstrap_servers
        self._deadline = deadline
        self._patience = patience
        self._personal = PersonalData(keys)
        self._on_revoked: Callable[[], None] = lambda: None
        self._failure: BaseException | None = None
        self._down_since: float | None = None
        self._paused = False
        self._closing = False
        self._ahead: list[KafkaArrival] = []
        self._passed: dict[int, int] = {}

    @property
    def kept_as(self) -> str:
        """The topic."""
        return self._topic

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Join the group; TopicMissing, BrokerUnreachable, BrokerRefused."""
        with OffsetReader(self._settings, deadline=self._deadline) as offsets:
            offsets.partitions([self._topic])
            self._ensure_dead_letters(offsets)
        self._on_revoked = on_revoked
        self._schemas = TopicSchemas(self._settings)
        self._decoder = AvroDecoder(self._schemas.schema)
        self._producer = RecordProducer(self._settings)
        self._consumer = Consumer(self._consumer_settings())
        self._places = Places(self._consumer, self._topic)
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, timeout: float) -> Sequence[KafkaArrival]:
        """Return what has arrived once there is something, at most a batch; nothing after `timeout` s.

        TopicMissing, OffsetsGone, BrokerUnreachable, BrokerRefused.
        """
        self._resume()
        batch = self._subscription.batch
        arrivals, self._ahead = self._ahead[:batch], self._ahead[batch:]
        if arrivals:
            return self._opened(arrivals)
        with typed_errors(self._servers, topic=self._topic):
            # Nothing is at hand and nothing ahead, so all that was read is done.
            self._places.commit_idle()
        arrivals = self._read(timeout)
        if not arrivals:
            self._check_broker()
        return self._opened(arrivals)

    def prepare(self) -> None:
        """Fetch and decode the next batch while the handler works on this one."""
        if not self._ahead:
            # Not assigned: a rebalance inside of the read gives back what it halts.
            read = self._read(0)
            self._ahead += read

    def keep_alive(self) -> None:
        """Serve the group without fetching: partitions pause until the next poll."""
        if not self._paused:
            self._paused = True
            self._consumer.pause(self._places.owned())
        with typed_errors(self._servers, topic=self._topic):
            message = self._consumer.poll(0)
        self._raise_failure()
        if message is not None:
            self._ahead += self._arrivals(message)

    def checkpoint(self, tx: Connection, arrivals: Sequence[KafkaArrival]) -> None:
        """Nothing: the offsets' home is the broker, and the inbox bridges the gap."""

    def acknowledge(self, arrivals: Sequence[KafkaArrival]) -> None:
        """Commit the offsets after these records, in the background; partitions lost meanwhile are left out."""
        with typed_errors(self._servers, topic=self._topic):
            self._places.done(arrival.message for arrival in arrivals)

    def give_back(self, arrivals: Sequence[KafkaArrival]) -> None:
        """Keep these records for the next poll, in front of what was fetched after them."""
        self._ahead = [*arrivals, *self._ahead]

    def dead_letter(self, letter: DeadLetter[KafkaArrival]) -> None:
        """Send the untouched record to the dead-letter topic; returns once the broker has it. KafkaError.

        Of a record that no topic takes, as one that unpacks to much more, its place alone.
        """
        message = letter.arrival.message
        origin = (self._topic, message.partition() or 0, letter.arrival.offset)
        told = dead_letter_headers(
            origin,
            group=letter.group,
            error=letter.error,
            attempts=letter.attempts,
            time=letter.time,
            message=letter.message,
        )
        # A dead letter that was sent back and died again tells of its last death only.
        own = tuple(pair for pair in _headers(message) if not pair[0].startswith(DEAD_LETTER_PREFIX))
        name, key, value = self._subscription.dead_letter_topic, _bytes(message.key()), _bytes(message.value())
        try:
            self._producer.send([OutgoingRecord(topic=name, key=key, value=value, headers=own + told)])
        except BrokerRefused as refused:
            if not is_too_large(refused):
                raise
            left_out = ((DEAD_LETTER_OMITTED, str(len(value or b"")).encode()),)
            self._producer.send([OutgoingRecord(topic=name, key=None, value=None, headers=told + left_out)])

    def lag(self) -> Lag:
        """Return how far the group is behind what is committed in the topic."""
        return group_lag(self._settings, self._topic, group=self._subscription.group)

    def close(self) -> None:
        """Commit what is acknowledged and leave the group at once."""
        self._on_revoked = lambda: None
        self._closing = True
        try:
            with typed_errors(self._servers, topic=self._topic):
                self._places.commit_now()
        finally:
            close_consumer(
                self._consumer,
                unless="the group was not left; its other members get these partitions when the session has timed out",
                topic=self._topic,
                group=self._subscription.group,
            )
            self._schemas.close()

    def _ensure_dead_letters(self, offsets: OffsetReader) -> None:
        """Make the topic now rather than when it is needed; one that is there may be as its owner wants it."""
        name = self._subscription.dead_letter_topic
        try:
            offsets.partitions([name])
        except TopicMissing:
            ensure_topics(self._settings, [dead_letter_topic(name)])

    def _read(self, timeout: float) -> list[KafkaArrival]:
        messages = self._fetch(timeout)
        self._raise_failure()
        return [arrival for message in messages for arrival in self._arrivals(message)]

    def _fetch(self, timeout: float) -> list[Message]:
        with typed_errors(self._servers, topic=self._topic):
            # `consume` alone would wait the whole time for a full batch.
            first = self._consumer.poll(timeout)
            if first is None:
                return []
            return [first, *self._consumer.consume(self._subscription.batch - 1, 0)]

    def _arrivals(self, message: Message) -> list[KafkaArrival]:
        if is_unreadable(message):
            return self._passed_over(message)
        return [self._arrival(message)] if self._is_record(message) else []

    def _passed_over(self, message: Message) -> list[KafkaArrival]:
        """Go on behind a batch that cannot be unpacked, once: the client tells of it until it is told to go on."""
        partition, first = message.partition() or 0, message.offset() or 0
        if not self._places.owns(partition) or first < self._passed.get(partition, 0):
            return []
        end = end_of_batch(self._settings, self._topic, partition, first=first)
        with typed_errors(self._servers, topic=self._topic):
            self._consumer.seek(TopicPartition(self._topic, partition, end))
        self._passed[partition] = end
        return [KafkaArrival(PassedOver(self._topic, partition, first, end), problem=unreadable(message))]

    def _is_record(self, message: Message) -> bool:
        problem = message.error()
        if problem is None:
            # What was fetched before a rebalance belongs to somebody else now.
            return self._places.owns(message.partition())
        if problem.name() == "_PARTITION_EOF":
            self._places.at_end(message)
        elif problem.name() in OUT_OF_RANGE:
            raise self._gone(message)
        elif problem.name() not in PASSING:
            with typed_errors(self._servers, topic=self._topic):
                raise KafkaException(problem)
        return False

    def _arrival(self, message: Message) -> KafkaArrival:
        value = message.value()
        if value is None:
            # The event of a deleted stream: there is nothing left to handle.
            return KafkaArrival(message)
        try:
            headers = cast("dict[str, bytes]", dict(_headers(message)))
            if self._subscription.source is not None:
                require_source(headers.items(), self._subscription.source, place="")
            kind, event_id = headers["ce_type"].decode(), _hexadecimal(headers["ce_id"])
            if self._types is not None and kind not in self._types:
                # A body that nobody wants is not decoded.
                self._check_known(kind, value)
                return KafkaArrival(message)
            schema, data = self._decoder.decode(value)
        except (SchemaError, ForeignRecord) as problem:
            return self._unreadable(message, problem)
        except (KeyError, ValueError, AttributeError) as error:
            return self._unreadable(message, not_an_event(f"its headers lack or misstate {error}", ""))
        return KafkaArrival(message, kind, event_id, schema, data)

    def _opened(self, arrivals: Sequence[KafkaArrival]) -> Sequence[KafkaArrival]:
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
        found = KafkaArrival(message, problem=problem)
        problem.place = problem.place or found.place
        return found

    def _check_known(self, kind: str, value: bytes) -> None:
        self._schemas.schema(schema_id_of(value))
        if not self._schemas.knows_type(kind):
            raise not_an_event(f"no schema belongs to its type {kind!r}", "")

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:
            # Nothing is read any more, and a client that closes answers no question: it would be waited for.
            return
        placed = self._guarded(lambda: start_places(self._settings, consumer, self._subscription, partitions))
        if placed is None:
            return
        for partition in placed:
            self._passed.pop(partition.partition, None)
        consumer.incremental_assign(placed)
        self._places.given(placed)
        # librdkafka remembers that a partition was paused through the loss of it: one that is back would stay silent.
        (consumer.pause if self._paused else consumer.resume)(placed)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guarded(self._on_revoked)
        self._guarded(self._places.commit_now)
        self._places.taken(partitions)
        self._drop_foreign()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # First, so that nothing more is committed for them.
        self._places.taken(partitions)
        self._guarded(self._on_revoked)
        self._drop_foreign()

    def _drop_foreign(self) -> None:
        """Let go of records that are somebody else's now; should their partition come back, they are fetched again."""
        self._ahead = [arrival for arrival in self._ahead if self._places.owns(arrival.message.partition())]

    def _guarded(self, step: Callable[[], Any]) -> Any:
        """Run a step inside a callback of librdkafka, which knows no exceptions: they wait for the end of the poll."""
        try:
            return step()
        except BaseException as failure:
            self._failure = self._failure or failure
            return None

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            with typed_errors(self._servers, topic=self._topic):
                raise failure

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._consumer.resume(self._places.owned())

    def _gone(self, message: Message) -> OffsetsGone:
        return OffsetsGone(
            f"group {self._subscription.group!r} stands at records of {self._topic!r} that were deleted unread",
            remedy="restore them if they matter, then: "
            f"factfold subscriptions reset {self._topic} {self._subscription.group} --to beginning",
            place=f"{self._topic}[{message.partition()}]",
        )

    def _on_client_error(self, error: KafkaError) -> None:
        if error.name() == "_ALL_BROKERS_DOWN" and self._down_since is None:
            self._down_since = time.monotonic()

    def _check_broker(self) -> None:
        """Look whether a broker that was away is back; BrokerUnreachable where it stays away."""
        if self._down_since is None:
            return
        try:
            self._consumer.list_topics(self._topic, timeout=2)
        except KafkaException as error:
            if time.monotonic() - self._down_since > self._patience:
                raise broker_unreachable(self._servers, error.args[0].str()) from error
        else:
            self._down_since = None

    def _consumer_settings(self) -> dict[str, Any]:
        timeout = self._subscription.timeout + _POLL_MARGIN_SECONDS
        return {
            **self._settings.kafka.librdkafka(),
            "log_level": 0,
            "error_cb": self._on_client_error,
            "on_commit": self._on_committed,
            "group.id": self._subscription.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "max.poll.interval.ms": int(timeout * 1000),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            # Records that are gone before they were read are somebody's loss, and never passed over in silence.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            # How long a topic that was deleted goes unnoticed.
            "topic.metadata.refresh.interval.ms": int(DEADLINE_SECONDS * 1000),
        }

    def _on_committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._guarded(lambda: self._places.committed(error, partitions))


def _hexadecimal(text: bytes) -> str:
    """Return an id in one spelling; ValueError where it is no UUID. A UUID object takes eight times as long."""
    number = unhexlify(text.replace(b"-", b""))
    if len(number) != 16:
        raise ValueError(f"ce_id {text!r}")
    return number.hex()


def _headers(message: Message | PassedOver) -> list[tuple[str, bytes | None]]:
    # The client hands bytes out as it got them; its types allow for what a producer may put in.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
