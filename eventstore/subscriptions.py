"""What a service declares about events it reacts to: a handler, the topic it reads, the group it belongs to.

    @subscription("payment.suspicious", group="fraud-remediation")
    def review(event: Payment.Received, tx: Connection) -> None: ...

The handler's parameters say what it is called with:

    event: Payment.Received              one event of this class, or of several: `A | B`; others are skipped
    events: list[Payment.Received]       the new events of a batch, in their order, in one call
    event: RecordedEvent                 every event of the topic, as it was recorded
    recorded: RecordedEvent              beside an event class: id, stream, time, and `caused()` for commands it sends
    tx: Connection                       by this name: the transaction its effects belong in (SQLAlchemy)

A coroutine function gets an AsyncConnection as `tx`, and is delivered to by AsyncSubscriber.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeVar, get_args

from eventstore.delivery.signature import HandlerSignature, signature_of
from eventstore.errors import DeclarationError
from eventstore.event_types import visible_names
from eventstore.identifiers import check_group, check_source, check_topic
from eventstore.topics import DEFAULT_SOURCE, topic_of_category

if TYPE_CHECKING:
    from eventstore.aggregate import Aggregate

P = ParamSpec("P")
R = TypeVar("R")

Guarantee = Literal["effectively-once", "at-least-once"]
Unreadable = Literal["dead-letter", "stop"]
Start = Literal["beginning", "end"] | datetime | Mapping[int, int]

EFFECTIVELY_ONCE: Final = "effectively-once"
AT_LEAST_ONCE: Final = "at-least-once"


@dataclass(frozen=True, kw_only=True)
class Subscription(Generic[P, R]):
    """A handler and how it wants its events; called like the handler itself.

    `start` counts where the group has no place yet. `timeout` and `backoff` are seconds: a handler is given up after
    the one, the first retry waits the other, each further one twice as long, a minute at most. `batch` bounds the
    records of one transaction. `unreadable` says what becomes of a record without a readable event. The inbox forgets
    an event after `remember`. With `source` a record of another service is not readable either.
    """

    handler: Callable[P, R]
    topic: str
    group: str
    signature: HandlerSignature
    guarantee: Guarantee
    start: Start = "beginning"
    attempts: int = 5
    backoff: float = 0.2
    timeout: float = 60.0
    batch: int = 2000
    unreadable: Unreadable = "dead-letter"
    remember: timedelta = timedelta(days=30)
    source: str | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if self.source is not None:
            check_source(self.source)
        check_group(self.group)
        check_topic(self.dead_letter_topic)
        for problem, remedy in _mistakes(self):
            raise DeclarationError(f"{self.name}: {problem}", remedy=remedy, place=self.name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler, as a test does."""
        return self.handler(*args, **kwargs)

    @cached_property
    def name(self) -> str:
        """The handler's module and name."""
        return f"{self.handler.__module__}.{self.handler.__qualname__}"

    @property
    def dead_letter_topic(self) -> str:
        """Where records are kept that could not be handled."""
        return f"{self.topic}.{self.group}.dead-letter"

    @property
    def keeps_inbox(self) -> bool:
        """Whether events are remembered so that a repeated one is not handled again."""
        return self.guarantee == EFFECTIVELY_ONCE


def subscription(
    topic: str | type[Aggregate],
    *,
    group: str,
    guarantee: Guarantee | None = None,
    **options: Any,
) -> Callable[[Callable[P, R]], Subscription[P, R]]:
    """Subscribe a handler to a topic; members of one group share its partitions, each group gets every event.

    An aggregate in place of the topic means the topic of its events, as the store of the service `source` names it.
    `guarantee` is effectively once for a handler that takes `tx`, at least once for one that does not. The other
    options are the fields of Subscription. DeclarationError, InvalidIdentifier.
    """
    names = visible_names(inspect.currentframe())
    read = topic if isinstance(topic, str) else _topic_of(topic, options.get("source"))

    def declare(handler: Callable[P, R]) -> Subscription[P, R]:
        signature = signature_of(handler, names)
        chosen: Guarantee = guarantee or (EFFECTIVELY_ONCE if signature.tx else AT_LEAST_ONCE)
        return Subscription(
            handler=handler, topic=read, group=group, signature=signature, guarantee=chosen, **_known(options)
        )

    return declare


def _topic_of(aggregate: type[Aggregate], source: str | None) -> str:
    return topic_of_category(aggregate.category, source=DEFAULT_SOURCE if source is None else source)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    known = ("start", "attempts", "backoff", "timeout", "batch", "unreadable", "remember", "source")
    for name in options:
        if name not in known:
            raise DeclarationError(
                f"a subscription has no option {name!r}", remedy=f"use one of {', '.join(known)}", place=name
            )
    return options


def _mistakes(declared: Subscription[..., Any]) -> list[tuple[str, str]]:
    checks = [
        (declared.guarantee in get_args(Guarantee), f"guarantee {declared.guarantee!r} is not known",
         "choose effectively-once or at-least-once"),
        (declared.signature.tx or not declared.keeps_inbox, "effectively once without a transaction is not possible",
         "take `tx: Connection` and write through it, or choose at-least-once"),
        (_is_start(declared.start), f"start {declared.start!r} is not a place",
         "use beginning, end, an aware datetime, or {partition: offset}"),
        (declared.unreadable in get_args(Unreadable), f"unreadable {declared.unreadable!r} is not known",
         "choose dead-letter or stop"),
        (declared.attempts >= 1 and declared.batch >= 1, "attempts and batch count from 1", "use 1 or more"),
        (declared.timeout > 0 and declared.backoff >= 0, "timeout and backoff are seconds", "use a number above zero"),
        (declared.remember > timedelta(0), "remember is how long the inbox keeps an event", "use a time above zero"),
    ]  # fmt: skip
    return [(problem, remedy) for holds, problem, remedy in checks if not holds]


def _is_start(start: object) -> bool:
    if isinstance(start, datetime):
        return start.utcoffset() is not None
    if isinstance(start, Mapping):
        return bool(start) and all(isinstance(n, int) and n >= 0 for pair in start.items() for n in pair)
    return start in ("beginning", "end")
