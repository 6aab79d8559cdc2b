"""A source that is a member of a group on Kafka, whether the group shares partitions or records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message

from eventstore.delivery.subscriptions import Subscription
from eventstore.erasure import KeyStore, PersonalData
from eventstore.kafka.admin import DEADLINE_SECONDS, typed_errors
from eventstore.kafka.arrivals import ArrivalReader, KafkaArrival
from eventstore.kafka.consumer import PASSING
from eventstore.kafka.schemas import TopicSchemas
from eventstore.restarts import PATIENCE_SECONDS
from eventstore.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection


class GroupSource:
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

    def checkpoint(self, tx: Connection, arrivals: Sequence[KafkaArrival]) -> None:
        """Nothing: the broker knows which records are done, and the inbox bridges the gap."""

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
