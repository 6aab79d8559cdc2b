"""Topics read as a member of a group: partitions come and go, offsets are committed after the effects.

A source that is a member of a group on Kafka, whether the group shares partitions or records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from eventstore.delivery.source import DeadLetter, Lag, Source
from eventstore.delivery.subscriptions import Subscription
from eventstore.erasure import KeyStore, PersonalData
from eventstore.errors import OffsetsExpired
from eventstore.kafka.admin import DEADLINE_SECONDS, broker_unreachable, typed_errors
from eventstore.kafka.arrivals import ArrivalReader, KafkaArrival
from eventstore.kafka.consumer import (
    OUT_OF_RANGE,
    PASSING,
    PassedOver,
    TopicSchemas,
    close_consumer,
    end_of_batch,
    is_unreadable,
    unreadable,
)
from eventstore.kafka.groups import subscription_lag
from eventstore.kafka.places import Partition, Places, partition_of, start_places
from eventstore.kafka.producer import Letters
from eventstore.kafka.tails import MISSING, Following
from eventstore.restarts import PATIENCE_SECONDS
from eventstore.settings import Settings


class GroupSource(Source[KafkaArrival]):
    """The topics of a subscription as a source."""

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
        self._reads = subscription.reads
        self._settings = settings
        self._servers = settings.kafka.bootstrap_servers
        self._deadline = deadline
        self._patience = patience
        self._personal = PersonalData(keys)
        self._on_revoked: Callable[[], None] = lambda: None
        self._down_since: float | None = None

    def checkpoint_name(self, arrival: KafkaArrival) -> str:
        """Return the record's own topic."""
        return arrival.topic

    def key_of(self, arrival: KafkaArrival) -> str:
        """Return the event's stream."""
        return arrival.key

    def _opened(self, on_revoked: Callable[[], None]) -> None:
        self._on_revoked = on_revoked
        self._schemas = TopicSchemas(self._settings)
        self._reader = ArrivalReader(self._subscription, self._schemas, self._personal)

    def _check(self, message: Message, problem: KafkaError) -> None:
        """Raise the error that a message is, unless it passes by itself."""
        if problem.name() not in PASSING:
            with typed_errors(self._servers, topic=message.topic() or self._reads):
                raise KafkaException(problem)

    def _on_client_error(self, error: KafkaError) -> None:
        if error.name() == "_ALL_BROKERS_DOWN" and self._down_since is None:
            self._down_since = time.monotonic()


# A handler may work for its whole timeout while the group waits for us to give partitions back.
_POLL_MARGIN_SECONDS: Final = 240.0
# What librdkafka fetches of a partition at once by default.
_FETCH_BYTES: Final = 1 << 20


class Holding:
    """Holds back records before their time, and those behind them in their partitions.

    What was read of a partition when it pauses is held in memory, at most a batch.
    """

    def __init__(self, consumer: Consumer, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._consumer = consumer
        self._clock = clock
        self._held: dict[Partition, list[KafkaArrival]] = {}

    def holds(self, partition: Partition) -> bool:
        """Say whether a partition waits."""
        return partition in self._held

    def passed(self, arrival: KafkaArrival) -> bool:
        """Say whether a record may be handled now; hold it where it may not."""
        partition = partition_of(arrival.message)
        if partition in self._held:
            self._held[partition].append(arrival)
            return False
        if self._is_due(arrival):
            return True
        self._held[partition] = [arrival]
        self._consumer.pause([TopicPartition(*partition)])
        return False

    def due(self) -> list[KafkaArrival]:
        """Return the records whose time has come, and resume partitions that hold no others."""
        return [arrival for partition in list(self._held) for arrival in self._released(partition)]

    def drop(self, owns: Callable[[KafkaArrival], bool]) -> None:
        """Drop records that another member owns now: it reads them again."""
        for partition, held in list(self._held.items()):
            if not owns(held[0]):
                del self._held[partition]

    def _released(self, partition: Partition) -> Iterator[KafkaArrival]:
        held = self._held[partition]
        while held and self._is_due(held[0]):
            yield held.pop(0)
        if not held:
            del self._held[partition]
            self._consumer.resume([TopicPartition(*partition)])

    def _is_due(self, arrival: KafkaArrival) -> bool:
        return arrival.retry is None or arrival.retry.due <= self._clock()


class KafkaSource(GroupSource):
    """A subscription's topics as a source; members of its group share the partitions."""

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Join the group; TopicMissing, BrokerUnreachable, BrokerRefused."""
        self._failure: BaseException | None = None
        self._paused = False
        self._closing = False
        self._ahead: list[KafkaArrival] = []
        self._passed: dict[tuple[str, int], int] = {}
        self._letters = Letters(self._subscription, self._settings)
        self._following = Following(self._subscription, self._settings, self._letters, deadline=self._deadline)
        self._following.begin()
        self._opened(on_revoked)
        self._consumer = Consumer(self._consumer_settings())
        self._places = Places(self._consumer)
        self._holding = Holding(self._consumer)
        self._subscribe()

    def poll(self, timeout: float) -> Sequence[KafkaArrival]:
        """Return what has arrived once there is something, at most a batch; nothing after `timeout` s.

        TopicMissing, OffsetsExpired, BrokerUnreachable, BrokerRefused.
        """
        self._resume()
        if self._following.look(self._consumer):
            self._subscribe()
        self._ahead += self._holding.due()
        batch = self._subscription.batch
        arrivals, self._ahead = self._ahead[:batch], self._ahead[batch:]
        if arrivals:
            return self._reader.opened(arrivals)
        with typed_errors(self._servers, topic=self._reads):
            # Nothing is at hand and nothing ahead, so all that was read is done.
            self._places.commit_idle()
        arrivals = self._read(timeout)
        if not arrivals:
            self._check_broker()
        return self._reader.opened(arrivals)

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
        with typed_errors(self._servers, topic=self._reads):
            message = self._consumer.poll(0)
        self._raise_failure()
        if message is not None:
            self._ahead += self._arrivals(message)

    def take(self, arrivals: Sequence[KafkaArrival]) -> Sequence[KafkaArrival]:
        """Commit the offsets after these records and wait for the answer; nothing while the group moves partitions.

        BrokerUnreachable, BrokerRefused.
        """
        with typed_errors(self._servers, topic=self._reads):
            taken = self._places.take(arrival.message for arrival in arrivals)
        if not taken:
            self.give_back(arrivals)
        return arrivals if taken else []

    def acknowledge(self, arrivals: Sequence[KafkaArrival]) -> None:
        """Commit the offsets after these records, in the background; partitions lost meanwhile are left out."""
        with typed_errors(self._servers, topic=self._reads):
            self._places.done(arrival.message for arrival in arrivals)

    def give_back(self, arrivals: Sequence[KafkaArrival]) -> None:
        """Keep these records for the next poll, in front of what was fetched after them."""
        self._places.undone((partition_of(arrival.message), arrival.offset) for arrival in arrivals)
        self._ahead = [*arrivals, *self._ahead]

    def dead_letter(self, letter: DeadLetter[KafkaArrival]) -> None:
        """Send the untouched record to the dead-letter topic; returns once the broker has it. KafkaError."""
        self._letters.bury(letter)

    def postpone(self, letter: DeadLetter[KafkaArrival], after: timedelta) -> None:
        """Send the record to the retry topic, due after a while; returns once the broker has it. KafkaError."""
        self._letters.postpone(letter, after)

    def lag(self) -> Lag:
        """Return how far the group is behind what is committed in the topic."""
        return subscription_lag(self._settings, self._following.topics, group=self._subscription.group)

    def close(self) -> None:
        """Commit what is acknowledged and leave the group at once."""
        self._on_revoked = lambda: None
        self._closing = True
        try:
            with typed_errors(self._servers, topic=self._reads):
                self._places.commit_now()
        finally:
            close_consumer(
                self._consumer,
                unless="the group was not left; its other members get these partitions when the session has timed out",
                topics=self._reads,
                group=self._subscription.group,
            )
            self._schemas.close()

    def _subscribe(self) -> None:
        assigned = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self._lost}
        if self._following.topics:
            self._consumer.subscribe(self._following.topics, **assigned)
        else:
            self._consumer.unsubscribe()

    def _read(self, timeout: float) -> list[KafkaArrival]:
        messages = self._fetch(timeout)
        self._raise_failure()
        return [arrival for message in messages for arrival in self._arrivals(message)]

    def _fetch(self, timeout: float) -> list[Message]:
        with typed_errors(self._servers, topic=self._reads):
            # `consume` alone would wait the whole time for a full batch.
            first = self._consumer.poll(timeout)
            if first is None:
                return []
            return [first, *self._consumer.consume(self._subscription.batch - 1, 0)]

    def _arrivals(self, message: Message) -> list[KafkaArrival]:
        if is_unreadable(message):
            return self._passed_over(message)
        if not self._is_record(message):
            return []
        topic = message.topic() or ""
        arrival = self._reader.read(message, self._following.origin(topic), again=self._following.is_retried(topic))
        return [arrival] if self._holding.passed(arrival) else []

    def _passed_over(self, message: Message) -> list[KafkaArrival]:
        """Seek past a batch that cannot be unpacked, once: the client reports it until the seek."""
        topic, partition, first = message.topic() or "", message.partition() or 0, message.offset() or 0
        if not self._places.owns(message) or first < self._passed.get((topic, partition), 0):
            return []
        end = end_of_batch(self._settings, topic, partition, first=first)
        with typed_errors(self._servers, topic=topic):
            self._consumer.seek(TopicPartition(topic, partition, end))
        self._passed[topic, partition] = end
        passed = PassedOver(topic, partition, first, end)
        arrival = KafkaArrival(passed, problem=unreadable(message), topic=self._following.origin(topic))
        return [arrival] if self._holding.passed(arrival) else []

    def _is_record(self, message: Message) -> bool:
        problem = message.error()
        if problem is None:
            # What was fetched before a rebalance may belong to another member now.
            return self._places.owns(message)
        if problem.name() == "_PARTITION_EOF":
            if not self._holding.holds(partition_of(message)):
                self._places.at_end(message)
        elif problem.name() in OUT_OF_RANGE:
            raise OffsetsExpired(
                f"group {self._subscription.group!r} stands at records of {message.topic()!r} that were deleted unread",
                remedy="restore them if they matter, then: "
                f"factfold subscriptions reset {message.topic()} {self._subscription.group} --to beginning",
                place=f"{message.topic()}[{message.partition()}]",
            )
        elif problem.name() in MISSING and self._following.may_go(message.topic()):
            self._following.look_soon()
        else:
            self._check(message, problem)
        return False

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:
            # Nothing is read any more, and a client that closes answers no question: it would be waited for.
            return
        placed = self._guarded(lambda: self._start_places(consumer, partitions))
        if placed is None:
            return
        for partition in placed:
            self._passed.pop((partition.topic, partition.partition), None)
        consumer.incremental_assign(placed)
        self._places.given(placed)
        # librdkafka remembers that a partition was paused through the loss of it: one that is back would stay silent.
        (consumer.pause if self._paused else consumer.resume)(placed)

    def _start_places(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """A retry topic holds only what its group has still to do, wherever the subscription starts."""
        places = start_places(
            self._settings,
            consumer,
            [p for p in partitions if not self._following.is_retried(p.topic)],
            start=self._subscription.start,
        )
        retried = [p for p in partitions if self._following.is_retried(p.topic)]
        return places + start_places(self._settings, consumer, retried, start="beginning")

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
        """Drop records that another member owns now. If their partition comes back, they are fetched again."""
        self._ahead = [arrival for arrival in self._ahead if self._places.owns(arrival.message)]
        self._holding.drop(lambda arrival: self._places.owns(arrival.message))

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
            with typed_errors(self._servers, topic=self._reads):
                raise failure

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            owned = [p for p in self._places.owned() if not self._holding.holds((p.topic, p.partition))]
            self._consumer.resume(owned)

    def _check_broker(self) -> None:
        """Look whether a broker that was away is back; BrokerUnreachable where it stays away."""
        if self._down_since is None:
            return
        try:
            self._consumer.list_topics(timeout=2)
        except KafkaException as error:
            if time.monotonic() - self._down_since > self._patience:
                raise broker_unreachable(self._servers, error.args[0].str()) from error
        else:
            self._down_since = None

    def _consumer_settings(self) -> dict[str, Any]:
        timeout = self._subscription.timeout + _POLL_MARGIN_SECONDS
        return {
            **_bounded(self._subscription.intake),
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
            # Records that were deleted before they were read are a loss: raise an error, never skip them in silence.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            # How long a topic that was deleted goes unnoticed.
            "topic.metadata.refresh.interval.ms": int(DEADLINE_SECONDS * 1000),
        }

    def _on_committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._guarded(lambda: self._places.committed(error, partitions))


def _bounded(intake: int | None) -> dict[str, Any]:
    """Settings that bound what the client fetches: as much again is ahead of the handler, and at hand."""
    if intake is None:
        return {}
    part = intake // 3
    return {
        "queued.max.messages.kbytes": part // 1024,
        "fetch.max.bytes": part,
        "fetch.message.max.bytes": min(part, _FETCH_BYTES),
    }
