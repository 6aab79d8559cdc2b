"""Starting a subscription on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any

from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.subscriber import Subscriber
from eventstore.erasure import KeyStore
from eventstore.settings import Settings
from eventstore.subscriptions import Subscription

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from eventstore.delivery.async_subscriber import AsyncSubscriber


def open_subscriber(
    subscription: Subscription[..., Any],
    *,
    settings: Settings | None = None,
    engine: Engine | None = None,
    keys: KeyStore | None = None,
) -> Subscriber:
    """Join a subscription's group on Kafka; the inbox and the dead-letter topic are made if they are missing.

    `engine` is that of the database the handler writes to, `keys` open personal fields. TopicMissing,
    BrokerUnreachable, BrokerRefused, StoreUnavailable; DeclarationError for a handler with `tx` without an engine.
    """
    from eventstore.kafka.source import KafkaSource

    return Subscriber(subscription, KafkaSource(subscription, settings or Settings(), keys=keys), engine=engine)


def open_async_subscriber(
    subscription: Subscription[..., Any],
    *,
    settings: Settings | None = None,
    engine: AsyncEngine | None = None,
    keys: KeyStore | None = None,
) -> AsyncSubscriber:
    """Return what joins a subscription's group on Kafka in its `async with`; the errors of `open_subscriber`.

    `engine` is that of the database the coroutine handler writes to, `keys` open personal fields: they are asked in the
    thread that reads, so a synchronous key store is right.
    """
    from eventstore.delivery.async_subscriber import AsyncSubscriber
    from eventstore.kafka.source import KafkaSource

    return AsyncSubscriber(subscription, KafkaSource(subscription, settings or Settings(), keys=keys), engine=engine)


def run_subscription(
    subscription: Subscription[..., Any],
    *,
    stop: Event,
    settings: Settings | None = None,
    engine: Engine | None = None,
    keys: KeyStore | None = None,
    on_batch: Callable[[DeliveryReport], None] | None = None,
) -> DeliveryReport:
    """Deliver a subscription's events until `stop` is set; the errors of `open_subscriber` and of `Subscriber.run`."""
    with open_subscriber(subscription, settings=settings, engine=engine, keys=keys) as subscriber:
        return subscriber.run(stop=stop, on_batch=on_batch)
