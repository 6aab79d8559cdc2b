r"""What a service declares about events it reacts to: a handler, the topic it reads, the group it belongs to.

    @subscription("payment.suspicious", group="fraud-remediation")
    def review(event: Payment.Received, tx: Connection) -> None: ...

The handler's parameters say what it is called with:

    event: Payment.Received              one event of this class, or of several: `A | B`; others are skipped
    events: list[Payment.Received]       the new events of a batch, in their order, in one call
    event: RecordedEvent                 every event of the topic, as it was recorded
    recorded: RecordedEvent              with an event class: id, stream, time, and `caused()` for commands it sends
    tx: Connection                       by this name: the transaction its effects belong in (SQLAlchemy)

Several topics, or all whose names match a pattern, are one subscription too:

    @subscription(["order", "payment"], group="ledger")
    @subscription(pattern=r"payment\..*", group="audit")

A coroutine function gets an AsyncConnection as `tx`, and is delivered to by AsyncSubscriber.

A handler's parameters read once: which of them is the event, the recorded event, the transaction.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from eventstore.aggregates.aggregate import Aggregate, types_as_stored
from eventstore.delivery.source import Arrival, Delivery
from eventstore.errors import DeclarationError
from eventstore.event_types import EventType, event_type_of, is_event_class, visible_names
from eventstore.identifiers import check_group, check_source, check_topic
from eventstore.store import RecordedEvent
from eventstore.topics import DEFAULT_SOURCE, dead_letter_topic_of, is_of_a_group, retry_topic_of, topic_of_category

# The name is the rule: `Connection` is often imported for type checkers only, and then has no value here.
_TRANSACTION: Final = "tx"
_CALLABLE_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """Names of the parameters; `types` None takes every event as it was recorded, `many` takes lists.

    `awaits` says that the handler is a coroutine function. `types` are the types by the names they are stored under:
    those of the handler's classes, and those that an upcaster may make such events of.
    """

    event: str
    recorded: str | None
    tx: bool
    many: bool
    types: Mapping[str, EventType] | None
    classes: frozenset[type] = frozenset()
    awaits: bool = False
    delivery: str | None = None

    @property
    def needs_recorded(self) -> bool:
        """Whether the handler asks for events as they were recorded."""
        return self.recorded is not None or self.types is None

    def events(self, arrival: Arrival) -> list[Any]:
        """Return the current events of a record that the handler takes. Raises SchemaError."""
        kind = (self.types or {})[str(arrival.type)]
        events = kind.events(arrival.schema_version, arrival.data)
        return [event for event in events if type(event) in self.classes]

    def arguments(self, event: Any, recorded: Any, tx: Any) -> dict[str, Any]:
        """Return what to call the handler with."""
        given = {self.event: event}
        if self.recorded is not None:
            given[self.recorded] = recorded
        if self.tx:
            given[_TRANSACTION] = tx
        if self.delivery is not None:
            given[self.delivery] = Delivery()
        return given


def signature_of(handler: Callable[..., object], names: Mapping[str, Any]) -> HandlerSignature:
    """Read a handler's annotations, `names` being those visible where it is defined; DeclarationError."""
    place = getattr(handler, "__qualname__", repr(handler))
    given = _hints(handler, names, place)
    delivery = next((name for name, hint in given.items() if _classes(hint) == (Delivery,)), None)
    hints = {name: hint for name, hint in given.items() if name != delivery}
    many = {name: get_origin(hint) is list for name, hint in hints.items()}
    classes = {name: _classes(hint) for name, hint in hints.items()}
    recorded = [name for name, hinted in classes.items() if hinted == (RecordedEvent,)]
    typed = [name for name, hinted in classes.items() if hinted and all(map(is_event_class, hinted))]
    _check(place, hints, typed, recorded, many)
    if delivery is not None and any(many.values()):
        raise _mistake(place, "takes a delivery and a list", "take one event: each has a delivery of its own")
    event = (typed or recorded)[0]
    return HandlerSignature(
        event=event,
        recorded=recorded[0] if typed and recorded else None,
        tx=_TRANSACTION in inspect.signature(handler).parameters,
        many=many[event],
        types=_types(classes[event], place) if typed else None,
        classes=frozenset(classes[event]) if typed else frozenset(),
        awaits=inspect.iscoroutinefunction(handler),
        delivery=delivery,
    )


def _hints(handler: Callable[..., object], names: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the type of each parameter but `tx`."""
    parameters = inspect.signature(handler).parameters
    for parameter in parameters.values():
        if parameter.kind not in _CALLABLE_BY_NAME:
            raise _mistake(place, f"takes {parameter}", "name each parameter: handlers are called by keyword")
    required = [name for name in parameters if name != _TRANSACTION]
    missing = [name for name in required if parameters[name].annotation is inspect.Parameter.empty]
    if missing:
        raise _mistake(place, f"has parameter {missing[0]!r} without annotation", "annotate it with its event class")
    written = types.SimpleNamespace(__annotations__={name: parameters[name].annotation for name in required})
    try:
        return get_type_hints(written, getattr(handler, "__globals__", {}), dict(names))
    except (NameError, AttributeError) as error:
        raise _mistake(place, f"has an annotation that cannot be found: {error}", "import it in the module") from None


def _classes(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is list:
        (hint,) = get_args(hint)
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _check(
    place: str, hints: Mapping[str, Any], typed: list[str], recorded: list[str], many: Mapping[str, bool]
) -> None:
    foreign = [name for name in hints if name not in (*typed, *recorded)]
    if foreign:
        raise _mistake(
            place,
            f"has parameter {foreign[0]!r} of type {hints[foreign[0]]!r}, which is no event",
            "use a class made by @event, several joined by |, RecordedEvent, a list of one of these, Delivery, or `tx`",
        )
    if len(typed) > 1 or len(recorded) > 1 or not hints:
        raise _mistake(place, "does not take one event", "take one event, with RecordedEvent and tx")
    if len(set(many.values())) > 1:
        raise _mistake(place, "takes a list and a single event", "take lists of both, or one of each")


def _types(classes: tuple[Any, ...], place: str) -> dict[str, EventType]:
    if len({event_type_of(cls).name for cls in classes}) < len(classes):
        raise _mistake(place, "takes two classes of one event type", "leave one of them out")
    return types_as_stored(classes)


def _mistake(place: str, what: str, remedy: str) -> DeclarationError:
    return DeclarationError(f"handler {place} {what}", remedy=remedy, place=place)


P = ParamSpec("P")
R = TypeVar("R")

_Topic: TypeAlias = "str | type[Aggregate]"
Guarantee = Literal["effectively-once", "at-least-once", "at-most-once"]
Unreadable = Literal["dead-letter", "stop"]
Start = Literal["beginning", "end"] | datetime | Mapping[int, int]

# Of what one fetch brings a batch is at hand, one is ahead, and one is in the client's queue.
_LEAST_INTAKE: Final = 3 << 20
# A broker locks a record for a minute at most, and counts ten deliveries at most before it drops it unseen.
_LONGEST_CALL: Final = 30.0
MOST_DELIVERIES: Final = 10

EFFECTIVELY_ONCE: Final = "effectively-once"
AT_LEAST_ONCE: Final = "at-least-once"
AT_MOST_ONCE: Final = "at-most-once"


class QueueOptions(TypedDict, total=False):
    """The fields of Subscription that `queue` takes, for type checkers and editors."""

    start: Start
    attempts: int
    backoff: float
    timeout: float
    batch: int
    remember: timedelta
    source: str | None


class SubscriptionOptions(QueueOptions, total=False):
    """The fields of Subscription that `subscription` takes, for type checkers and editors."""

    unreadable: Unreadable
    retry: Sequence[timedelta]
    intake: int
    parallel: int


@dataclass(frozen=True, kw_only=True)
class Subscription(Generic[P, R]):
    """A handler and how it gets its events. Call it like the handler itself.

    Attributes:
        start: Where a group without a place begins.
        attempts: How often a record is delivered before it becomes a dead letter.
        backoff: Seconds before the first retry. Each further pause is twice as long, a minute at most.
        timeout: Seconds after which a handler is given up.
        batch: The number of records of a transaction at most.
        unreadable: What happens to a record without a readable event.
        remember: How long the inbox remembers an event.
        source: The only service whose records are read.
        retry: How long a failed record waits in the retry topic, for each further attempt. Records of its key overtake
            it.
        parallel: How many handlers work at once, each on streams of its own.
        intake: The bytes of records in memory, roughly. A larger record comes alone.
        share: Members share records instead of partitions, as `queue` declares it.
        deliveries: How often a shared record is delivered at most.

    Examples:
        >>> @subscription("payment.suspicious", group="fraud")
        ... def review(event: Payment.Received, tx: Connection) -> None: ...
        >>> review.group
        'fraud'
    """

    handler: Callable[P, R]
    group: str
    signature: HandlerSignature
    guarantee: Guarantee
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Start = "beginning"
    attempts: int = 5
    backoff: float = 0.2
    timeout: float = 60.0
    batch: int = 2000
    unreadable: Unreadable = "dead-letter"
    remember: timedelta = timedelta(days=30)
    source: str | None = None
    retry: tuple[timedelta, ...] = ()
    intake: int | None = None
    parallel: int = 1
    share: bool = False
    deliveries: int = 1

    def __post_init__(self) -> None:
        if self.source is not None:
            check_source(self.source)
        check_group(self.group)
        for topic in self.topics:
            check_topic(topic)
            check_topic(self.dead_letter_topic_of(topic))
        for problem, remedy in _mistakes(self):
            raise DeclarationError(f"{self.name}: {problem}", remedy=remedy, place=self.name)

    def __repr__(self) -> str:
        """One line: the handler, its group and what it reads."""
        return f"<Subscription {self.name}: group {self.group}, reads {self.reads}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler, as a test does."""
        return self.handler(*args, **kwargs)

    @cached_property
    def name(self) -> str:
        """The handler's module and name."""
        return f"{self.handler.__module__}.{self.handler.__qualname__}"

    @property
    def topic(self) -> str:
        """The topic of a subscription to one. Raises DeclarationError if it reads several or a pattern."""
        if len(self.topics) != 1:
            raise DeclarationError(
                f"{self.name} reads {self.reads}, which is not one topic",
                remedy="use `topics` and `pattern`, or the topic of the record",
                place=self.name,
            )
        return self.topics[0]

    @property
    def reads(self) -> str:
        """Its topics or its pattern, for messages."""
        return ", ".join(self.topics) if self.pattern is None else f"topics like {self.pattern}"

    @property
    def dead_letter_topic(self) -> str:
        """Where unhandled records of its only topic are stored. Raises the errors of `topic`."""
        return self.dead_letter_topic_of(self.topic)

    def dead_letter_topic_of(self, topic: str) -> str:
        """Return where unhandled records of a topic are stored."""
        return dead_letter_topic_of(topic, self.group)

    def retry_topic_of(self, topic: str) -> str:
        """Return where records of a topic wait for another attempt of this group."""
        return retry_topic_of(topic, self.group)

    def chosen(self, existing: Iterable[str]) -> list[str]:
        """Return the topics it reads among those that exist, and declared ones that are missing."""
        if self.pattern is None:
            return list(self.topics)
        return sorted(name for name in existing if re.fullmatch(self.pattern, name) and not is_of_a_group(name))

    def retry_delay(self, retries: int) -> timedelta | None:
        """Return how long a failed record waits after so many retries, None if it is given up."""
        if self.share:
            return timedelta(0) if retries + 1 < self.deliveries else None
        return self.retry[retries] if retries < len(self.retry) else None

    @property
    def at_most_once(self) -> bool:
        """Whether records are taken as done before they are handled."""
        return self.guarantee == AT_MOST_ONCE

    @property
    def stores_place(self) -> bool:
        """Whether the place in the log is stored in the handler's own transaction. With parallel handlers it is not."""
        return self.signature.tx and self.parallel == 1

    @property
    def effectively_once(self) -> bool:
        """Whether events are remembered so that a repeated one is not handled again."""
        return self.guarantee == EFFECTIVELY_ONCE


def subscription(
    topic: _Topic | Sequence[_Topic] | None = None,
    *,
    group: str,
    pattern: str | None = None,
    guarantee: Guarantee | None = None,
    **options: Unpack[SubscriptionOptions],
) -> Callable[[Callable[P, R]], Subscription[P, R]]:
    """Subscribe a handler to a topic. Members of a group share its partitions, and each group gets every event.

    Args:
        topic: A topic, or an aggregate for the topic of its events, as `source` names it. A list names several.
        group: The group.
        pattern: A regular expression that the whole names of topics match, instead of `topic`.
        guarantee: By default effectively once for a handler that takes `tx`, and at least once for another.
        **options: Fields of Subscription, such as `batch` or `retry`.

    Raises:
        DeclarationError: An option is wrong, or the handler has another signature. InvalidIdentifier: a name is wrong.

    Examples:
        >>> @subscription("shop.order", group="mails")
        ... def notify(event: Order.Paid, tx: Connection) -> None:
        ...     tx.execute(insert(mails).values(amount=event.amount))
    """
    names, read = visible_names(inspect.currentframe()), _topics(topic, options.get("source"))
    given = _known({**options}, SubscriptionOptions.__optional_keys__)
    return _declaring(
        names, guarantee, lambda chosen: {"topics": read, "pattern": pattern, "group": group} | _defaults(given, chosen)
    )


def queue(
    topic: _Topic | Sequence[_Topic],
    *,
    group: str,
    guarantee: Guarantee | None = None,
    deliveries: int = 5,
    **options: Unpack[QueueOptions],
) -> Callable[[Callable[P, R]], Subscription[P, R]]:
    """Let any number of workers share the records of a topic one by one, in no order, by a share group of Kafka.

    A handler that returns acknowledges its record. A handler that raises releases it for another delivery.

    Args:
        topic: A topic or an aggregate, or a list of them.
        group: The share group.
        guarantee: As in `subscription`.
        deliveries: How often a record is delivered before it becomes a dead letter.
        **options: `start`, `timeout`, `batch`, `remember`, `source`, and `attempts` and `backoff` within one delivery.

    Raises:
        DeclarationError: An option is wrong, or the handler has another signature. InvalidIdentifier: a name is wrong.

    Examples:
        >>> @queue("shop.order", group="labels")
        ... def print_label(event: Order.Paid, delivery: Delivery) -> None: ...
    """
    names, read = visible_names(inspect.currentframe()), _topics(topic, options.get("source"))
    usual = {"attempts": 1, "batch": 50, "timeout": 20.0}
    given = usual | _known({**options}, QueueOptions.__optional_keys__)
    own = {"topics": read, "group": group, "share": True, "deliveries": deliveries}
    return _declaring(names, guarantee, lambda chosen: own | given)


def _declaring(
    names: Mapping[str, Any], guarantee: Guarantee | None, options: Callable[[Guarantee], dict[str, Any]]
) -> Callable[[Callable[P, R]], Subscription[P, R]]:
    """Return the decorator of a handler, whose annotations see these names; `options` are those of a guarantee."""

    def declare(handler: Callable[P, R]) -> Subscription[P, R]:
        signature = signature_of(handler, names)
        chosen = guarantee or _strongest(signature)
        return Subscription(handler=handler, signature=signature, guarantee=chosen, **options(chosen))

    return declare


def _strongest(signature: HandlerSignature) -> Guarantee:
    return EFFECTIVELY_ONCE if signature.tx else AT_LEAST_ONCE


def _topics(given: _Topic | Sequence[_Topic] | None, source: str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    each: Sequence[_Topic] = given if isinstance(given, list | tuple) else [given]  # type: ignore[list-item]
    return tuple(one if isinstance(one, str) else _topic_of(one, source) for one in each)


def _topic_of(aggregate: type[Aggregate], source: str | None) -> str:
    if not isinstance(getattr(aggregate, "category", None), str):
        raise DeclarationError(
            f"{aggregate!r} is no topic", remedy="give the name of a topic, an aggregate, or a list of these"
        )
    return topic_of_category(aggregate.category, source=DEFAULT_SOURCE if source is None else source)


def _known(options: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    for name in options:
        if name not in known:
            raise DeclarationError(
                f"a subscription has no option {name!r}", remedy=f"use one of {', '.join(sorted(known))}", place=name
            )
    return options


def _defaults(options: dict[str, Any], guarantee: Guarantee) -> dict[str, Any]:
    """A record that is put off is not tried again before, and one that is handled at most once never is."""
    delays = options.get("retry", ())
    delays = tuple(delays) if isinstance(delays, list) else delays
    return ({"attempts": 1} if delays or guarantee == AT_MOST_ONCE else {}) | options | {"retry": delays}


def _mistakes(declared: Subscription[..., Any]) -> list[tuple[str, str]]:
    checks = [
        (declared.guarantee in get_args(Guarantee), f"guarantee {declared.guarantee!r} is not known",
         "choose effectively-once, at-least-once or at-most-once"),
        (not (declared.at_most_once and declared.signature.tx), "at most once with a transaction is not possible: it "
         "would lose events for nothing", "choose effectively-once"),
        (not (declared.at_most_once and declared.signature.many), "at most once with a list of events is not possible: "
         "a list that fails is handed over again in parts", "take one event, or choose at-least-once"),
        (not declared.at_most_once or (declared.attempts == 1 and not declared.retry),
         "at most once with further attempts is not possible", "leave out attempts and retry, or choose at-least-once"),
        (declared.signature.tx or not declared.effectively_once,
         "effectively once without a transaction is not possible",
         "take `tx: Connection` and write through it, or choose at-least-once"),
        (_is_start(declared.start), f"start {declared.start!r} is not a place",
         "use beginning, end, an aware datetime, or {partition: offset}"),
        (_is_pattern(declared.pattern), f"pattern {declared.pattern!r} is no regular expression",
         r"write one that whole names match, such as payment\..*"),
        (bool(declared.topics) != (declared.pattern is not None), f"topics {list(declared.topics)}, with pattern "
         f"{declared.pattern!r}", "give at least one topic, or a pattern instead"),
        (len(set(declared.topics)) == len(declared.topics), f"topics {list(declared.topics)} name one twice",
         "name each topic once"),
        (len(declared.topics) == 1 or not isinstance(declared.start, Mapping),
         f"start {declared.start!r} does not say of which topic", "start at beginning, end or a time"),
        (declared.pattern is None or declared.start != "end",
         "a topic that matches later would begin at its end, behind its first events",
         "start at beginning or at a fixed time"),
        (declared.unreadable in get_args(Unreadable), f"unreadable {declared.unreadable!r} is not known",
         "choose dead-letter or stop"),
        (declared.attempts >= 1 and declared.batch >= 1, "attempts and batch count from 1", "use 1 or more"),
        (declared.timeout > 0 and declared.backoff >= 0, "timeout and backoff are seconds", "use a number above zero"),
        (isinstance(declared.parallel, int) and declared.parallel >= 1, f"parallel {declared.parallel!r} is no number",
         "use 1 or more"),
        (declared.parallel == 1 or not declared.retry, "parallel handlers keep the order within a stream, and "
         "retry gives it up", "leave out retry, or parallel"),
        (declared.parallel == 1 or not declared.at_most_once, "parallel handlers are not at most once: what one of "
         "them has done before another fails arrives again", "choose at-least-once or effectively-once"),
        (_are_delays(declared.retry), f"retry {declared.retry!r} is no list of times to wait",
         "use a list of timedeltas above zero: retry=[timedelta(seconds=10), timedelta(minutes=5)]"),
        (declared.intake is None or declared.intake >= _LEAST_INTAKE, f"intake {declared.intake!r} is below a fetch",
         f"give at least {_LEAST_INTAKE:,} bytes, or none"),
        (declared.remember > timedelta(0), "remember is how long the inbox keeps an event", "use a time above zero"),
    ]  # fmt: skip
    checks += (
        _of_queue(declared)
        if declared.share
        else [(declared.signature.delivery is None, "a subscription takes no delivery", "declare it by @queue")]
    )
    return [(problem, remedy) for holds, problem, remedy in checks if not holds]


def _of_queue(declared: Subscription[..., Any]) -> list[tuple[bool, str, str]]:
    return [
        (not declared.at_most_once, "a queue is not at most once: its broker delivers again what was not acknowledged",
         "choose at-least-once or effectively-once"),
        (1 <= declared.deliveries < MOST_DELIVERIES, f"deliveries {declared.deliveries!r} is no such number",
         f"use 1 to {MOST_DELIVERIES - 1}: a broker drops records after {MOST_DELIVERIES}"),
        (declared.timeout <= _LONGEST_CALL, f"timeout {declared.timeout:g} s is too long for a queue",
         f"use {_LONGEST_CALL:g} s at most: a broker lends a record for a minute"),
        (declared.start in ("beginning", "end"), f"a queue does not start at {declared.start!r}",
         "use beginning or end"),
    ]  # fmt: skip


def _is_pattern(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except (re.error, TypeError):
        return False
    return pattern != ""


def _are_delays(delays: object) -> bool:
    each = delays if isinstance(delays, tuple) else (None,)
    return all(isinstance(delay, timedelta) and delay > timedelta(0) for delay in each)


def _is_start(start: object) -> bool:
    if isinstance(start, datetime):
        return start.utcoffset() is not None
    if isinstance(start, Mapping):
        return bool(start) and all(isinstance(n, int) and n >= 0 for pair in start.items() for n in pair)
    return start in ("beginning", "end")
