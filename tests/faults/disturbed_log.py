"""A log that comes as at-least-once producers and many partitions bring it: records again, partitions late."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eventstore.kafka.producer import OutgoingRecord
from tests.integration.log_writer import LogWriter

SHARE = 0.05  # of the records come again, and as many come late
LATEST = 200  # records


def disturbed(records: Sequence[OutgoingRecord], *, seed: int) -> list[OutgoingRecord]:
    """The records as they come: a twentieth twice, before a twentieth other partitions' are preferred.

    What comes late has everything behind it of its partition wait too, as Kafka keeps a partition's order: only a
    repeated record is older than what its partition has already. Tombstones are not repeated.
    """
    chance = random.Random(seed)
    return [record for _, record in sorted(_timed(records, chance), key=lambda timed: timed[0])]


def _timed(records: Sequence[OutgoingRecord], chance: random.Random) -> Iterator[tuple[float, OutgoingRecord]]:
    reached: dict[tuple[str, int | None], float] = defaultdict(float)
    for number, record in enumerate(records):
        place = record.topic, record.partition
        late = chance.uniform(0, LATEST) if chance.random() < SHARE else 0
        reached[place] = max(reached[place], number + late)
        yield reached[place], record
        if record.value is not None and chance.random() < SHARE:
            yield reached[place] + chance.uniform(0, LATEST), record


def moved(records: Sequence[OutgoingRecord], source: LogWriter, target: LogWriter) -> list[OutgoingRecord]:
    """The same records for the topics of another writer."""
    names = {source.events_topic: target.events_topic}
    names |= {topic: target.changes_topics[table] for table, topic in source.changes_topics.items()}
    return [replace(record, topic=names[record.topic]) for record in records]
