"""Topics read as a worker of a share group: each record is lent to one worker, which reports its end to the broker.

A worker that dies leaves its records to the others when its connection or their lock ends. A batch that takes longer
than half of the lock ends after the call at hand, and the broker gets the rest back. It lends whole batches of a
producer, so one of them may be longer than the subscription's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import structlog
from confluent_kafka import (
    AcknowledgeType,
    ConsumerGroupState,
    IllegalStateException,
    KafkaException,
    Message,
    ShareConsumer,
)
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]  # exported, but not marked so

from eventstore.delivery.source import DeadLetter, Lag
from eventstore.delivery.subscriptions import MOST_DELIVERIES, Subscription
from eventstore.errors import SubscriptionError
from eventstore.kafka.admin import Cluster, OffsetReader, typed_errors
from eventstore.kafka.arrivals import KafkaArrival
from eventstore.kafka.consumer import close_within
from eventstore.kafka.places import partition_of
from eventstore.kafka.producer import Letters
from eventstore.kafka.source import GroupSource
from eventstore.settings import Settings

# What brokers allow for the lock of a record by default.
_SHORTEST_LOCK, _LONGEST_LOCK = 15.0, 60.0
_RESETS: Final = {"beginning": "earliest", "end": "latest"}
# An answer that comes later than this is not waited for: the records arrive again.
_COMMIT_SECONDS: Final = 10.0
# Settings of readers of partitions, which a share group's broker decides instead.
_NOT_SHARED: Final = frozenset({"group.instance.id", "session.timeout.ms", "heartbeat.interval.ms"})
log = structlog.get_logger()


def lock_seconds(timeout: float) -> float:
    """Return how long a worker has a record: a call that begins within the first half ends within the second."""
    return min(_LONGEST_LOCK, max(_SHORTEST_LOCK, 2 * timeout))


def group_settings(subscription: Subscription[..., object]) -> dict[str, str]:
    """Return the settings that a queue needs: records of transactions that were aborted are no events.

    The broker's own limit of deliveries stays above that of the subscription: it drops a record without a trace.
    """
    return {
        "share.auto.offset.reset": _RESETS[str(subscription.start)],
        "share.isolation.level": "read_committed",
        "share.record.lock.duration.ms": str(int(lock_seconds(subscription.timeout) * 1000)),
        "share.delivery.count.limit": str(MOST_DELIVERIES),
    }


def prepare_group(settings: Settings, subscription: Subscription[..., object]) -> None:
    """Give a share group its settings, where it has others.

    SubscriptionError if the group is a consumer group; BrokerUnreachable, BrokerRefused.
    """
    cluster, group = Cluster(settings), subscription.group
    _require_no_consumers(cluster, subscription)
    given = {name: entry.value for name, entry in cluster.configs([group], ResourceType.GROUP)[group].items()}
    others = {name: value for name, value in group_settings(subscription).items() if given.get(name) != value}
    if others:
        cluster.set_configs(group, others, ResourceType.GROUP)


def _require_no_consumers(cluster: Cluster, subscription: Subscription[..., object]) -> None:
    """A broker refuses a share group of such a name with words that say nothing of it."""
    asked = cluster.admin.describe_consumer_groups([subscription.group], request_timeout=cluster.deadline)
    with typed_errors(cluster.servers):
        try:
            state = asked[subscription.group].result(cluster.deadline + 1).state
        except KafkaException as error:
            if error.args[0].name() != "GROUP_ID_NOT_FOUND":
                raise
            return
    if state != ConsumerGroupState.DEAD:
        raise SubscriptionError(
            f"group {subscription.group!r} is a consumer group, and cannot be the share group of a queue",
            remedy="name another group, or delete this one: kafka-consumer-groups.sh --delete --group "
            f"{subscription.group}",
            place=subscription.name,
        )


class ShareSource(GroupSource):
    """A queue's topics as a source; workers of its group share the records."""

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Join the group; TopicMissing, BrokerUnreachable, BrokerRefused."""
        self._ends: dict[str, AcknowledgeType] = {}
        self._halts_at = float("inf")
        self._letters = Letters(self._subscription, self._settings)
        with OffsetReader(self._settings, deadline=self._deadline) as offsets:
            for topic in offsets.partitions(self._subscription.topics):
                self._letters.ensure_topics(offsets, topic)
        prepare_group(self._settings, self._subscription)
        self._opened(on_revoked)
        self._consumer = ShareConsumer(self._consumer_settings())
        with typed_errors(self._servers, topic=self._reads):
            self._consumer.subscribe(list(self._subscription.topics))

    def poll(self, timeout: float) -> Sequence[KafkaArrival]:
        """Return records that were lent to this worker, at most a batch; nothing after `timeout` seconds.

        TopicMissing, BrokerUnreachable, BrokerRefused.
        """
        lent_at = time.monotonic()
        with typed_errors(self._servers, topic=self._reads):
            messages = list(self._consumer.poll(timeout))
        self._halts_at = lent_at + lock_seconds(self._subscription.timeout) / 2
        arrivals = [self._arrival(message) for message in messages if self._is_record(message)]
        if arrivals:
            self._down_since = None
        else:
            self._check_broker()
        return self._reader.opened(arrivals)

    def keep_alive(self) -> None:
        """End the batch at hand before the broker lends its records to another worker."""
        if time.monotonic() > self._halts_at:
            self._halts_at = float("inf")
            self._on_revoked()

    def take(self, arrivals: Sequence[KafkaArrival]) -> Sequence[KafkaArrival]:
        """Return nothing: a queue is not at most once."""
        return []

    def acknowledge(self, arrivals: Sequence[KafkaArrival]) -> None:
        """Tell the broker of each record how it ended: done, to be delivered again, or given up."""
        for arrival in arrivals:
            self._end(arrival, self._ends.pop(arrival.place, AcknowledgeType.ACCEPT))
        self._commit()

    def give_back(self, arrivals: Sequence[KafkaArrival]) -> None:
        """Release these records: the group's next worker gets them."""
        for arrival in arrivals:
            self._end(arrival, AcknowledgeType.RELEASE)
        self._commit()

    def dead_letter(self, letter: DeadLetter[KafkaArrival]) -> None:
        """Send the untouched record to the dead-letter topic; returns once the broker has it. KafkaError."""
        self._letters.bury(letter)
        self._ends[letter.arrival.place] = AcknowledgeType.REJECT

    def postpone(self, letter: DeadLetter[KafkaArrival], after: timedelta) -> None:
        """Let the broker deliver the record again, to whichever worker asks first."""
        self._ends[letter.arrival.place] = AcknowledgeType.RELEASE

    def lag(self) -> Lag:
        """Raise SubscriptionError: the client has no question for it."""
        raise SubscriptionError(
            f"how far the share group {self._subscription.group!r} is behind cannot be asked through this client",
            remedy=f"run kafka-share-groups.sh --describe --group {self._subscription.group}",
            place=self._subscription.name,
        )

    def close(self) -> None:
        """Leave the group at once; records that were not ended are lent to others."""
        try:
            close_within(_COMMIT_SECONDS, self._consumer.close)
        except (TimeoutError, KafkaException) as error:
            log.warning("the share group was not left in time", group=self._subscription.group, error=str(error))
        finally:
            self._schemas.close()

    def _arrival(self, message: Message) -> KafkaArrival:
        arrival = self._reader.read(message, message.topic() or "")
        arrival.deliveries = message.delivery_count() or 1
        if arrival.deliveries >= MOST_DELIVERIES and arrival.type is not None:
            # The broker drops it after this one: it must not meet a handler that may kill the process once more.
            arrival.problem = SubscriptionError(
                f"the record was delivered {arrival.deliveries} times, and no worker came to an end with it",
                remedy="look at the workers' logs: they were killed, or slower than the record's lock",
                place=arrival.place,
            )
        return arrival

    def _is_record(self, message: Message) -> bool:
        problem = message.error()
        if problem is None:
            return True
        self._check(message, problem)
        return False

    def _end(self, arrival: KafkaArrival, how: AcknowledgeType) -> None:
        try:
            self._consumer.acknowledge_offset(*partition_of(arrival.message), arrival.offset, how)
        except IllegalStateException as error:
            log.warning("a record was lent to another worker meanwhile", place=arrival.place, error=str(error))

    def _commit(self) -> None:
        with typed_errors(self._servers, topic=self._reads):
            answers = self._consumer.commit_sync(_COMMIT_SECONDS)
        for partition, error in answers.items():
            if error is not None:
                log.warning("records arrive again", place=str(partition), error=str(error))

    def _check_broker(self) -> None:
        """Look whether a broker that was away is back; BrokerUnreachable where it stays away."""
        if self._down_since is None or time.monotonic() - self._down_since < self._patience:
            return
        with OffsetReader(self._settings, deadline=self._deadline) as offsets:
            offsets.partitions(self._subscription.topics)
        self._down_since = None

    def _consumer_settings(self) -> dict[str, Any]:
        own = {name: value for name, value in self._settings.kafka.librdkafka().items() if name not in _NOT_SHARED}
        return {
            **own,
            "log_level": 0,
            "error_cb": self._on_client_error,
            "group.id": self._subscription.group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": self._subscription.batch,
            "fetch.wait.max.ms": 10,
        }
