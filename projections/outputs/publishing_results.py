"""Final results published to their topics: each exactly once, though Kafka and the database commit one after the other.

The database notes where a topic ended before a chunk is sent to it. A publisher that follows a killed one reads what is
behind that place, and leaves out what is there already. Opening its producer has shut out every earlier one, so that
nothing comes behind what it has read but its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eventstore.errors import TopicMissing
from projections.declaring.view_topics import RowProducer
from projections.stores import final_topics
from projections.stores.final_topics import Unsent

if TYPE_CHECKING:
    from projections.stores.port import Transactions


class ResultPublisher:
    """Publishes the final results of a group's views; a part of its publisher."""

    def __init__(self, store: Transactions, producer: RowProducer, group: str, topics: Sequence[str]) -> None:
        self._store, self._producer, self._group, self._topics = store, producer, group, topics
        self._ahead: dict[str, set[str]] = {}  # by topic, keys in it that the database does not know to be there

    def publish(self) -> int:
        """Publish all that waits, chunk by chunk; returns the number of records.

        Raises TopicMissing for a topic that was deleted since the publisher was opened, and what the broker refuses.
        """
        return sum(self._publish(topic) for topic in self._topics)

    def _publish(self, topic: str) -> int:
        published = 0
        while unsent := self._next(topic):
            published += self._send(unsent)
        return published

    def _next(self, topic: str) -> Unsent | None:
        with self._store.looking() as connection:
            return final_topics.first_unsent(connection, self._group, topic)

    def _send(self, unsent: Unsent) -> int:
        topic, before = unsent.topic, self._ends(unsent.topic)
        if topic not in self._ahead:
            self._ahead[topic] = self._unknown(topic, self._producer.keys_between(topic, unsent.ends, before))
        ahead = self._ahead[topic]
        rows = [row for row in unsent.rows if row["key"] not in ahead] if ahead else unsent.rows
        if rows:
            self._producer.send({topic: rows})
        ahead.difference_update(row["key"] for row in (unsent.rows if ahead else ()))
        with self._store.transaction() as connection:
            # While any is ahead it has to be found again, so the place from which to look stays.
            noted = final_topics.note_sent(connection, unsent, ends=unsent.ends if ahead else before)
        if not noted:
            del self._ahead[topic]  # another one has sent some, or the topic was created again: look again
        return len(rows)

    def _ends(self, topic: str) -> Mapping[int, int]:
        try:
            return self._producer.ends(topic)
        except TopicMissing as error:
            raise TopicMissing(
                f"topic {topic!r} was deleted, and final results wait for it",
                remedy="start the runner again: it creates the topic, and publishes every result",
                place=topic,
            ) from error

    def _unknown(self, topic: str, keys: set[str]) -> set[str]:
        """Those of the keys that the database does not know: the others are of its last notes, one after the other."""
        if not keys:
            return keys
        with self._store.looking() as connection:
            return keys - final_topics.last_noted(connection, topic, most=len(keys))
