"""Events delivered to a subscription's handler as a subscriber would, as often as a log may deliver them.

    deliver(book, Payment.Received(amount=3), times=3, engine=engine)

The road is the real one (inbox, transaction, retries, in the handler's own database); only the log is a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from eventstore.backends.memory import MemoryEventStore
from eventstore.backends.sql.source import StoreArrival
from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.source import DeadLetter, Lag, Source
from eventstore.delivery.subscriber import Subscriber
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import DeclarationError
from eventstore.event_types import type_of_object
from eventstore.identifiers import ANY, StreamName
from eventstore.store import RecordedEvent

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["deliver", "deliver_async"]


def deliver(
    subscription: Subscription[..., Any],
    *events: object,
    times: int = 1,
    engine: Engine | AsyncEngine | None = None,
    stream_id: str = "1",
) -> DeliveryReport:
    """Deliver events in their order to a subscription's handler, and return the report.

    An error of the handler is raised after the attempts that the subscription allows, without pauses. A coroutine
    handler runs on an event loop of its own, with an AsyncEngine. In an asynchronous test, await `deliver_async`.

    Args:
        subscription: The subscription.
        *events: Objects of event classes, or recorded events such as `Accepted.events`.
        times: How often to deliver all of them.
        engine: The handler's database, if it takes a transaction.
        stream_id: The id of the stream in which event objects are recorded.

    Examples:
        >>> deliver(notify, Order.Paid(amount=120), times=2, engine=engine).duplicates
        1
    """
    if subscription.signature.awaits:
        _require_no_loop(subscription)
        return asyncio.run(_delivered_alone(subscription, *events, times=times, engine=engine, stream_id=stream_id))
    records = _List(_arrivals(events, stream_id) * times, subscription)
    with Subscriber(replace(subscription, backoff=0.0), records, engine=cast("Engine | None", engine)) as subscriber:
        while records.left:
            subscriber.run_once(timeout=0)
        return subscriber.report


async def deliver_async(
    subscription: Subscription[..., Any],
    *events: object,
    times: int = 1,
    engine: AsyncEngine | None = None,
    stream_id: str = "1",
) -> DeliveryReport:
    """Deliver events to a coroutine handler on the event loop of the test, as `deliver` does.

    Examples:
        >>> report = await deliver_async(pack, Order.Placed(sku="tea"), times=2, engine=engine)
        >>> report.handled, report.duplicates
        (1, 1)
    """
    from eventstore.delivery.async_subscriber import AsyncSubscriber  # needs the extra async

    records = _List(_arrivals(events, stream_id) * times, subscription)
    async with AsyncSubscriber(replace(subscription, backoff=0.0), records, engine=engine) as subscriber:
        while records.left:
            await subscriber.run_once(timeout=0)
        return subscriber.report


async def _delivered_alone(subscription: Subscription[..., Any], *events: object, **options: Any) -> DeliveryReport:
    from eventstore.backends.sql.greenlets import leave_loop  # needs the extra async

    try:
        return await deliver_async(subscription, *events, **options)
    finally:
        if options["engine"] is not None:
            await leave_loop(options["engine"])


def _require_no_loop(subscription: Subscription[..., Any]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise DeclarationError(
        f"{subscription.name} is a coroutine function, and so is the test that delivers to it",
        remedy="await deliver_async(…), from eventstore.testing.delivering",
        place=subscription.name,
    )


def _arrivals(events: Sequence[object], stream_id: str) -> list[StoreArrival]:
    store, recorded = MemoryEventStore(), []
    for event in events:
        if isinstance(event, RecordedEvent):
            recorded.append(event)
            continue
        stream = StreamName(type_of_object(event).name.partition(".")[0], stream_id)
        result = store.append(stream, [event], expected=ANY)
        recorded += store.read_stream(stream, from_version=result.version)
    return [StoreArrival(event, {}, event.type) for event in recorded]


class _List(Source[StoreArrival]):
    """A log that is a list. It stores no progress: every record is delivered as it stands."""

    def __init__(self, arrivals: Sequence[StoreArrival], subscription: Subscription[..., Any]) -> None:
        self.left = list(arrivals)
        self._batch = subscription.batch
        self._topics = subscription.topics

    def checkpoint_name(self, arrival: StoreArrival) -> str:
        return self._topics[0] if len(self._topics) == 1 else arrival.category

    def key_of(self, arrival: StoreArrival) -> str:
        """Return the event's stream."""
        return arrival.event.stream

    def poll(self, timeout: float) -> Sequence[StoreArrival]:
        batch, self.left = self.left[: self._batch], self.left[self._batch :]
        return batch

    def give_back(self, arrivals: Sequence[StoreArrival]) -> None:
        self.left = [*arrivals, *self.left]

    def dead_letter(self, letter: DeadLetter[StoreArrival]) -> None:
        raise letter.error

    def postpone(self, letter: DeadLetter[StoreArrival], after: timedelta) -> None:
        raise letter.error

    def lag(self) -> Lag:
        return Lag(())
