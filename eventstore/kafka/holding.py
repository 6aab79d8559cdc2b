"""Records of retry topics that are not due yet, and their partitions, which pause until they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from confluent_kafka import Consumer, TopicPartition

from eventstore.kafka.arrivals import KafkaArrival
from eventstore.kafka.places import Partition, partition_of


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
