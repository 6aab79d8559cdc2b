"""Starting a subscription on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any

from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.subscriber import Subscriber
from eventstore.settings import Settings
from eventstore.subscriptions import Subscription

if TYPE_CHECKING:
    from sqlalchemy import Engine


def open_subscriber(
    subscription: Subscription[..., Any], *, settings: Settings | None = None, engine: Engine | None = None
) -> Subscriber:
    """Join a subscription's group on Kafka; the inbox and the dead-letter topic are made if they are missing.

    `engine` is that of the database the handler writes to. TopicMissing, BrokerUnreachable, BrokerRefused,
    StoreUnavailable, DeclarationError for a handler that takes `tx` without an engine.
    """
    from eventstore.kafka.source import KafkaSource

    return Subscriber(subscription, KafkaSource(subscription, settings or Settings()), engine=engine)


def run_subscription(
    subscription: Subscription[..., Any],
    *,
    stop: Event,
    settings: Settings | None = None,
    engine: Engine | None = None,
    on_batch: Callable[[DeliveryReport], None] | None = None,
) -> DeliveryReport:
    """Deliver a subscription's events until `stop` is set; the errors of `open_subscriber` and of `Subscriber.run`."""
    with open_subscriber(subscription, settings=settings, engine=engine) as subscriber:
        return subscriber.run(stop=stop, on_batch=on_batch)
