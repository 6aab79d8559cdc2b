"""Events of a store delivered again to one subscription, although its inbox knows them.

An event's claim is removed and made again in the transaction of the handler's effects. If the handler fails, that
transaction is rolled back: the inbox says of the event what it said before. The group's place does not move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event
from typing import Any, Final, NoReturn, cast

from sqlalchemy import Connection, Engine

from eventstore.backends.sql.process_rows import SqlInboxes
from eventstore.backends.sql.source import Checkpoints, StoreArrival
from eventstore.backends.sql.store import SqlEventStore
from eventstore.delivery.attempt import Attempt, AttemptFailed, AttemptHopeless, Delivering
from eventstore.delivery.calls import Calls, HandlerThread
from eventstore.delivery.source import Source, masked_message
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import DeclarationError, FactfoldError, SubscriptionError
from eventstore.identifiers import Position
from eventstore.inbox import Inbox
from eventstore.inspection.selection import Selection
from eventstore.inspection.store_log import behind, newest_position
from eventstore.store import RecordedEvent
from eventstore.topics import require_source

# One look-up of sources and of inbox rows for so many events.
_PAGE: Final = 500


@dataclass(slots=True)
class ReplayPlan:
    """What a replay would deliver: events by type, how many the inbox knows, and the first of them."""

    events: int = 0
    known: int = 0
    types: dict[str, int] = field(default_factory=dict)
    first: list[RecordedEvent] = field(default_factory=list)


@dataclass(slots=True)
class ReplayReport:
    """What a replay did: events handled, those that another subscriber handled meanwhile, and the last one's place."""

    handled: int = 0
    overtaken: int = 0
    reached: Position | None = None


class Replay:
    """Delivers chosen events of a store to one subscription again, up to the store's newest event at that time.

    Args:
        store: The store of the events.
        subscription: The subscription whose handler is called.
        selection: Which events to deliver.
        engine: The handler's database, by default the store's.
        after: Leave out the events up to this position, which an earlier replay reached.
        category: The category behind a branch topic.
        branch: Says yes to the events of the branch.

    Raises:
        DeclarationError: The handler is a coroutine function, reads no topic of the store, or takes none of the events.

    Examples:
        >>> replay = Replay(store, notify, Selection(streams=("order-o1",)))
        >>> replay.plan().events
        3
    """

    def __init__(
        self,
        store: SqlEventStore,
        subscription: Subscription[..., Any],
        selection: Selection,
        *,
        engine: Engine | None = None,
        after: Position | None = None,
        category: str | None = None,
        branch: Callable[[RecordedEvent], bool] | None = None,
    ) -> None:
        _require_plain(subscription)
        self._store, self._subscription = store, subscription
        self._engine = engine or store.engine
        self._topics = _topics(store, subscription) if category is None else {category: subscription.topic}
        self._selection = _narrowed(selection, subscription, tuple(self._topics))
        self._after = after
        self._branch = branch or (lambda event: True)
        self._road = _Road(store, subscription.group, self._topics, self._engine)

    def plan(self, *, show: int = 20) -> ReplayPlan:
        """Return what would be delivered, with the first `show` events. Nothing is called and nothing changes."""
        plan, inboxes = ReplayPlan(), SqlInboxes(self._engine)
        for page in self._pages():
            reactions = inboxes.reactions([event.id for event in page])
            for event in page:
                arrival = StoreArrival(event, {}, event.type)
                plan.events += 1
                plan.types[event.type] = plan.types.get(event.type, 0) + 1
                plan.known += any(
                    one.group == self._subscription.group and one.topic == self._road.checkpoint_name(arrival)
                    for one in reactions.get(event.id, ())
                )
            plan.first += page[: show - len(plan.first)]
        return plan

    def run(self, *, on_progress: Callable[[ReplayReport], None] = lambda report: None) -> ReplayReport:
        """Deliver the events, one for each transaction, or a batch for a handler that takes lists.

        The replay ends at the first failure. What was delivered before stays.

        Raises:
            SubscriptionError: The handler raised an error.
            KeysMissing: An event has personal values, and the store was opened without keys.
            ForeignRecord: Another service wrote an event.
            SchemaError: A newer version of the code wrote an event.
            StoreUnavailable: The database did not answer.
        """
        report, attempt = ReplayReport(), self._attempt()
        size = self._subscription.batch if self._subscription.signature.many else 1
        for page in self._pages():
            rest = iter(page)
            while part := list(islice(rest, size)):
                self._deliver(attempt, [StoreArrival(event, {}, event.type) for event in part], report)
                report.reached = part[-1].position
            on_progress(report)
        return report

    def _pages(self) -> Iterator[list[RecordedEvent]]:
        newest = newest_position(self._store)
        if newest is None:
            return
        events = self._store.read_selected(self._selection, after=self._after, before=behind(newest))
        chosen = (event for event in events if self._branch(event))
        while page := list(islice(chosen, _PAGE)):
            self._require_source(page)
            yield page

    def _require_source(self, page: Sequence[RecordedEvent]) -> None:
        expected = self._subscription.source
        for event_id, source in self._store.sources_of([event.id for event in page]).items() if expected else ():
            require_source([("ce_source", source.encode())], str(expected), place=f"event {event_id}")

    def _attempt(self) -> Attempt:
        inbox = _Again(self._engine, self._subscription.group) if self._subscription.signature.tx else None
        if inbox is not None and self._subscription.effectively_once:
            inbox.create_tables()
        road = cast("Source[Any]", self._road)
        parts = Delivering(
            self._subscription, road, inbox, runner=HandlerThread("replay"), halt=Event(), patience=0.0, around=()
        )
        return Attempt(parts, Calls(timeout=self._subscription.timeout, patience=0.0))

    def _deliver(self, attempt: Attempt, part: Sequence[StoreArrival], report: ReplayReport) -> None:
        try:
            done = attempt.deliver(part)
        except (AttemptFailed, AttemptHopeless) as failed:
            self._raise(failed.cause, part, report)
        except FactfoldError as error:
            self._raise(error, part, report)
        report.handled += done.handled + done.skipped
        report.overtaken += done.duplicates

    def _raise(self, error: Exception, part: Sequence[StoreArrival], report: ReplayReport) -> NoReturn:
        done = f"{report.handled:,} events were handled before, and stay so"
        after = "" if report.reached is None else f" with --after {report.reached.text}"
        if isinstance(error, FactfoldError):
            error.add_note(f"{done}; replay again{after}")
            raise error from error.__cause__
        place = part[0].place if len(part) == 1 else f"{part[0].place} to {part[-1].place}"
        raise SubscriptionError(
            f"{self._subscription.name} failed: {type(error).__name__}: {masked_message(error, part)} ({done})",
            remedy=f"repair the handler, and replay again{after}",
            place=place,
        ) from error


class _Again(Inbox):
    """An inbox that takes back a claim before it makes it. What a subscriber handles at the same moment is not ours."""

    def claim(self, tx: Connection, topic: str, ids: Sequence[str]) -> set[str] | None:
        self.unclaim(tx, topic, ids)
        return super().claim(tx, topic, ids)


class _Road:
    """As much of a source as names events: under the name of the road that delivers them to the group."""

    def __init__(self, store: SqlEventStore, group: str, topics: Mapping[str, str], engine: Engine) -> None:
        self._store, self._group, self._topics, self._engine = store, group, topics, engine
        self._names: dict[str, str] = {}

    def checkpoint_name(self, arrival: StoreArrival) -> str:
        if (category := arrival.category) not in self._names:
            topic = self._topics[category]
            place = Checkpoints(self._store, self._group, topic, engine=self._engine)
            on_store = place.checkpoint_name == topic or place.looked_up() is not None
            self._names[category] = place.checkpoint_name if on_store else topic
        return self._names[category]

    def checkpoint(self, tx: Connection, arrivals: Sequence[StoreArrival]) -> None:
        """Nothing: the group's place stays."""


def parse_position(text: str) -> Position:
    """Read a position as a replay tells it, `0:17`; DeclarationError."""
    order, _, number = text.partition(":")
    try:
        return Position(int(order), int(number))
    except ValueError:
        raise DeclarationError(
            f"{text!r} is no position", remedy="give the one that the replay printed: two numbers, such as 0:17"
        ) from None


def _require_plain(subscription: Subscription[..., Any]) -> None:
    if subscription.signature.awaits:
        raise DeclarationError(
            f"handler {subscription.name} is a coroutine function, and a replay calls plain ones",
            remedy="move the group back and let it forget: factfold subscriptions reset --forget",
            place=subscription.name,
        )


def _topics(store: SqlEventStore, subscription: Subscription[..., Any]) -> dict[str, str]:
    """The topic of each category that the subscription reads."""
    known = {category.name: category.topic for category in store.categories()}
    chosen = set(subscription.chosen(known.values()))
    topics = {category: topic for category, topic in known.items() if topic in chosen}
    if not topics:
        published = ", ".join(known.values()) or "nothing"
        raise DeclarationError(
            f"{subscription.name} reads {subscription.reads}, and this store publishes {published}",
            remedy="name the store of these topics. For a branch topic, name its branches: --branches module:name",
            place=subscription.name,
        )
    return topics


def _narrowed(selection: Selection, subscription: Subscription[..., Any], categories: tuple[str, ...]) -> Selection:
    """What is chosen and what the handler takes, as one selection."""
    taken = subscription.signature.types
    own = [stream for stream in selection.streams if stream.partition("-")[0] not in categories]
    foreign = [*own, *(one for one in selection.categories if one not in categories)]
    if taken is not None:
        foreign += [name for name in selection.types if name not in taken]
    if foreign:
        raise DeclarationError(
            f"{subscription.name} takes no events of {', '.join(foreign)}",
            remedy=f"choose among categories {', '.join(categories)}"
            + (f", types {', '.join(taken)}" if taken else ""),
            place=subscription.name,
        )
    types = selection.types or (() if taken is None else tuple(taken))
    return replace(selection, types=types, categories=selection.categories or categories)
