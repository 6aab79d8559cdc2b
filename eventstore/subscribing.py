"""Starting a subscription on Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.calls import Around
from eventstore.delivery.source import Source
from eventstore.delivery.subscriber import Subscriber
from eventstore.delivery.subscriptions import Subscription
from eventstore.erasure import KeyStore
from eventstore.errors import SubscriptionError
from eventstore.restarts import PASSING, Outwaiting, Restarts
from eventstore.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from eventstore.delivery.async_subscriber import AsyncSubscriber
    from eventstore.metrics import SubscriptionMetrics


def open_subscriber(
    subscription: Subscription[..., Any],
    *,
    settings: Settings | None = None,
    engine: Engine | None = None,
    keys: KeyStore | None = None,
    around: Sequence[Around] = (),
) -> Subscriber:
    """Join a subscription's group on Kafka. The inbox and the dead-letter topic are created if they are missing.

    Args:
        subscription: The subscription.
        settings: The settings of Kafka, by default from the environment.
        engine: The database that the handler writes to.
        keys: The key store that opens personal fields.
        around: Context managers around each call of the handler, such as a span.

    Raises:
        DeclarationError: The handler takes `tx`, and there is no engine.
        TopicMissing: A topic does not exist.
        BrokerUnreachable: No broker answered. BrokerRefused: a broker refused.
        StoreUnavailable: The database did not answer.

    Examples:
        >>> with open_subscriber(review, engine=engine) as subscriber:
        ...     subscriber.run(stop=stop)
    """
    return Subscriber(subscription, _source(subscription, settings, keys), engine=engine, around=around)


def open_async_subscriber(
    subscription: Subscription[..., Any],
    *,
    settings: Settings | None = None,
    engine: AsyncEngine | None = None,
    keys: KeyStore | None = None,
    around: Sequence[Around] = (),
) -> AsyncSubscriber:
    """Return a subscriber that joins a subscription's group on Kafka in its `async with`.

    Args:
        subscription: The subscription.
        settings: The settings of Kafka, by default from the environment.
        engine: The database that the coroutine handler writes to.
        keys: A synchronous key store, which the reading thread calls.
        around: Context managers around each call of the handler, such as a span.

    Raises:
        FactfoldError: The errors of `open_subscriber`.

    Examples:
        >>> async with open_async_subscriber(pack, settings=Settings(), engine=engine) as subscriber:
        ...     await subscriber.run(stop=stop)
    """
    from eventstore.delivery.async_subscriber import AsyncSubscriber  # needs the extra async

    return AsyncSubscriber(subscription, _source(subscription, settings, keys), engine=engine, around=around)


def run_subscription(
    subscription: Subscription[..., Any],
    *,
    stop: Event,
    settings: Settings | None = None,
    engine: Engine | None = None,
    keys: KeyStore | None = None,
    on_batch: Callable[[DeliveryReport], None] | None = None,
    on_open: Callable[[], None] = lambda: None,
    restarts: Restarts | None = None,
    around: Sequence[Around] = (),
    metrics: SubscriptionMetrics | None = None,
) -> DeliveryReport:
    """Deliver a subscription's events until `stop` is set. Temporary failures lead to another start.

    Args:
        subscription: The subscription.
        stop: Ends the run.
        settings: The settings of Kafka, by default from the environment.
        engine: The database that the handler writes to.
        keys: The key store that opens personal fields.
        on_batch: Is called after each batch with records.
        on_open: Is called when the group is joined.
        restarts: How often, and after which pauses, it starts again if a broker or the database does not answer.
        around: Context managers around each call of the handler, such as a span.
        metrics: Counts for Prometheus.

    Raises:
        SubscriptionError: It failed too often in a row. Other errors of `open_subscriber` and `Subscriber.run` end it
            at once.

    Examples:
        >>> run_subscription(notify, stop=stop, engine=engine)
    """
    outwaiting, total = _outwaiting(subscription, restarts, metrics), DeliveryReport()
    tell = outwaiting.passing_on(None if metrics is None else metrics.delivered, on_batch)
    around = _timed(around, metrics)
    opening = partial(open_subscriber, subscription, settings=settings, engine=engine, keys=keys, around=around)
    while not stop.is_set():
        with outwaiting.over(stop), opening() as opened:
            on_open()
            try:
                opened.run(stop=stop, on_batch=tell)
            finally:
                total.add(opened.report)
    return total


async def run_async_subscription(
    subscription: Subscription[..., Any],
    *,
    stop: asyncio.Event,
    settings: Settings | None = None,
    engine: AsyncEngine | None = None,
    keys: KeyStore | None = None,
    on_batch: Callable[[DeliveryReport], None] | None = None,
    restarts: Restarts | None = None,
    around: Sequence[Around] = (),
    metrics: SubscriptionMetrics | None = None,
) -> DeliveryReport:
    """Deliver a subscription's events to a coroutine handler until `stop` is set, as `run_subscription` does.

    Examples:
        >>> await run_async_subscription(pack, stop=stop, engine=engine)
    """
    outwaiting, total = _outwaiting(subscription, restarts, metrics), DeliveryReport()
    tell = outwaiting.passing_on(None if metrics is None else metrics.delivered, on_batch)
    around = _timed(around, metrics)
    while not stop.is_set():
        began = time.monotonic()
        try:
            opening = open_async_subscriber(subscription, settings=settings, engine=engine, keys=keys, around=around)
            async with opening as opened:
                try:
                    await opened.run(stop=stop, on_batch=tell)
                finally:
                    total.add(opened.report)
        except PASSING as error:
            delay = outwaiting.failed(error, lasted=time.monotonic() - began)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
    return total


def _source(subscription: Subscription[..., Any], settings: Settings | None, keys: KeyStore | None) -> Source[Any]:
    if subscription.share:
        from eventstore.kafka.share_source import ShareSource  # needs the extra kafka

        return ShareSource(subscription, settings or Settings(), keys=keys)
    from eventstore.kafka.source import KafkaSource  # needs the extra kafka

    return KafkaSource(subscription, settings or Settings(), keys=keys)


def _outwaiting(
    subscription: Subscription[..., Any], restarts: Restarts | None, metrics: SubscriptionMetrics | None
) -> Outwaiting:
    place = f"{subscription.name}, group {subscription.group} of {subscription.reads}"
    return Outwaiting(
        restarts or Restarts(), what="subscription", place=place, gave_up=SubscriptionError, counted_by=metrics
    )


def _timed(around: Sequence[Around], metrics: SubscriptionMetrics | None) -> Sequence[Around]:
    return around if metrics is None else [*around, metrics.timed]
