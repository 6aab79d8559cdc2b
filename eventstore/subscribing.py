"""Starting a subscription on Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from eventstore.delivery.around import Around
from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.source import Source
from eventstore.delivery.subscriber import Subscriber
from eventstore.erasure import KeyStore
from eventstore.errors import SubscriptionGaveUp
from eventstore.restarts import PASSING, Outwaiting, Restarts
from eventstore.settings import Settings
from eventstore.subscriptions import Subscription

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
    """Join a subscription's group on Kafka. The inbox and the dead-letter topic are made if they are missing.

    `engine` is that of the database the handler writes to, `keys` open personal fields, `around` opens what stands
    around each call of the handler, such as a span. Raises TopicMissing, BrokerUnreachable, BrokerRefused or
    StoreUnavailable. Raises DeclarationError for a handler with `tx` without an engine.
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
    """Return what joins a subscription's group on Kafka in its `async with`. Raises the errors of `open_subscriber`.

    `engine` is that of the database the coroutine handler writes to, `keys` open personal fields. They are asked in the
    thread that reads: give a synchronous key store.
    """
    from eventstore.delivery.async_subscriber import AsyncSubscriber

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
    """Deliver a subscription's events until `stop` is set, over failures that pass by themselves.

    A broker or a database that is away, before the start or later, leads to another start by `restarts`. Raises
    SubscriptionGaveUp after too many in a row. Other errors of `open_subscriber` and `Subscriber.run` end it at once.
    `around` opens what stands around each call of the handler, and `metrics` counts for Prometheus.
    """
    outwaiting, total = _outwaiting(subscription, restarts, metrics), DeliveryReport()
    tell, around = _counting(outwaiting, on_batch, metrics), _timed(around, metrics)
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
    """Deliver a subscription's events to a coroutine handler until `stop` is set. As `run_subscription`."""
    outwaiting, total = _outwaiting(subscription, restarts, metrics), DeliveryReport()
    tell, around = _counting(outwaiting, on_batch, metrics), _timed(around, metrics)
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
        from eventstore.kafka.share_source import ShareSource

        return ShareSource(subscription, settings or Settings(), keys=keys)
    from eventstore.kafka.source import KafkaSource

    return KafkaSource(subscription, settings or Settings(), keys=keys)


def _outwaiting(
    subscription: Subscription[..., Any], restarts: Restarts | None, metrics: SubscriptionMetrics | None
) -> Outwaiting:
    place = f"{subscription.name}, group {subscription.group} of {subscription.reads}"
    return Outwaiting(
        restarts or Restarts(), what="subscription", place=place, gave_up=SubscriptionGaveUp, counted_by=metrics
    )


def _counting(
    outwaiting: Outwaiting, on_batch: Callable[[DeliveryReport], None] | None, metrics: SubscriptionMetrics | None
) -> Callable[[DeliveryReport], None]:
    def tell(report: DeliveryReport) -> None:
        outwaiting.recovered()
        if metrics is not None:
            metrics.delivered(report)
        if on_batch is not None:
            on_batch(report)

    return tell


def _timed(around: Sequence[Around], metrics: SubscriptionMetrics | None) -> Sequence[Around]:
    return around if metrics is None else [*around, metrics.timed]
