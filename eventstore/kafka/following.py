"""Which topics a member of a group reads: those declared, or those that match a pattern now, and its retry topics."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from eventstore.delivery.subscriptions import Subscription
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader
from eventstore.kafka.letters import Letters
from eventstore.settings import Settings

MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC"})
# A broker that does not answer at once is asked again later.
_ANSWER_SECONDS: Final = 2.0


class Following:
    """The topics that a member reads, looked after while it reads."""

    def __init__(
        self, subscription: Subscription[..., Any], settings: Settings, letters: Letters, *, deadline: float
    ) -> None:
        self._subscription = subscription
        self._settings = settings
        self._letters = letters
        self._deadline = deadline
        self._looks_at = 0.0
        self._origins: dict[str, str] = {}

    @property
    def topics(self) -> list[str]:
        """The topics read now."""
        return list(self._origins)

    def origin(self, topic: str) -> str:
        """Return the topic that records of a retry topic were published in, of another topic itself."""
        return self._origins.get(topic, topic)

    def is_retried(self, topic: str) -> bool:
        """Say whether a topic is a retry topic of the group."""
        return self.origin(topic) != topic

    def begin(self) -> None:
        """Find the topics; TopicMissing, BrokerUnreachable, BrokerRefused."""
        with OffsetReader(self._settings, deadline=self._deadline) as offsets:
            offsets.partitions(self._subscription.topics)
            self._follow(offsets, offsets.names())

    def look(self, consumer: Consumer) -> bool:
        """Ask now and then which topics there are; say whether others are to be read than before."""
        if time.monotonic() < self._looks_at:
            return False
        self._looks_at = time.monotonic() + DEADLINE_SECONDS
        try:
            existing = list(consumer.list_topics(timeout=_ANSWER_SECONDS).topics)
        except KafkaException:
            return False
        before = self._origins
        if self._read_now(existing) != before:
            with OffsetReader(self._settings, deadline=self._deadline) as offsets:
                self._follow(offsets, existing)
        return self._origins != before

    def look_soon(self) -> None:
        """Ask at the next occasion."""
        self._looks_at = 0.0

    def may_go(self, topic: str | None) -> bool:
        """Say whether a topic may be deleted while it is read: it was not declared by its name."""
        return topic not in self._subscription.topics and topic is not None

    def _follow(self, offsets: OffsetReader, existing: list[str]) -> None:
        topics = self._subscription.chosen(existing)
        for topic in topics:
            self._letters.ensure_topics(offsets, topic)
        made = map(self._subscription.retry_topic_of, topics) if self._subscription.retry else ()
        self._origins = self._read_now([*existing, *made])

    def _read_now(self, existing: list[str]) -> dict[str, str]:
        """Return the topics to read, each with the one that its records were published in.

        A retry topic is there for `retry`, or because dead letters were replayed to the group.
        """
        topics, names = self._subscription.chosen(existing), set(existing)
        retried = {self._subscription.retry_topic_of(topic): topic for topic in topics}
        return {topic: topic for topic in topics} | {name: retried[name] for name in retried if name in names}
