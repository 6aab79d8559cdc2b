"""The port between where events come from and the handler they are delivered to.

A source knows its place in its log and nothing of handlers; the subscriber knows nothing of logs:

    poll → [attempt → checkpoint → commit] → acknowledge        one batch; the brackets are a transaction
           (prepare, keep_alive meanwhile)                      at most once: take comes before the attempt
                    ├ dead_letter → checkpoint → commit         a record given up, or by postpone put off
                    └ halted: what is done is acknowledged, give_back the rest

`checkpoint`, `dead_letter` and `postpone` are called by the thread that runs handlers, everything else by the
subscriber's own.

The port of a record that arrived at a subscriber.

What is shown without personal values: an event's payload, and what an error says to logs and dead letters.

Of an error, no value of a personal event, and nothing that a driver quotes of a row:

(psycopg.errors.UniqueViolation) duplicate key value violates unique constraint "people_email_key"
DETAIL:  Key (email)=(ann@example.org) already exists.            left out
[SQL: insert into people …] [parameters: ('ann@example.org',)]    left out
"""

from __future__ import annotations

import re
import sqlite3
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar

from eventstore.errors import FactfoldError
from eventstore.personal.sealing import Disclosed, Sealed
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import RecordedEvent
from eventstore.topics import DEAD_LETTER_MESSAGE_LENGTH

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Arrival(Protocol):
    """One record that arrived. A source's own class, which also keeps what `acknowledge` needs.

    Without type and problem there is nothing in it for this handler, and it counts as skipped. The whole event is built
    only where a handler asks for it: to most the class it named is enough.

    Examples:
        >>> def around(call: HandlerCall) -> AbstractContextManager[None]:
        ...     return timed(call.arrivals[0].place)  # arrivals are of the source's own class of Arrival
    """

    @property
    def type(self) -> str | None:
        """The event's type name."""

    @property
    def id(self) -> str:
        """The event's id as 32 hexadecimal digits, where there is a type."""

    @property
    def data(self) -> Mapping[str, Any]:
        """The event's fields as Avro gives them, where there is a type."""

    @property
    def schema_version(self) -> int:
        """The version of the class that wrote the event, where there is a type."""

    @property
    def retries(self) -> int:
        """How often the record was put off already."""

    @property
    def problem(self) -> FactfoldError | None:
        """Why the record could not be read. Raises NotFramedAvro or UnknownSchema."""

    @property
    def place(self) -> str:
        """The record's address for messages, such as `payments[2]@17`."""

    def recorded(self) -> RecordedEvent:
        """Return the event as it was recorded, where there is a type. Raises NotFramedAvro."""


class Released(Exception):
    """The handler gave a record back: another worker, or the same one, gets it again."""


class Rejected(Exception):
    """The handler refused a record for good: it becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a record.

    Attributes:
        count: How often the record was delivered, counted from 1.
        place: The record's address, such as `payments[2]@17`.

    Examples:
        >>> @queue("payment.suspicious", group="review-desk", deliveries=3)
        ... def review(event: Payment.Received, delivery: Delivery) -> None:
        ...     if event.amount < 0:
        ...         delivery.reject("a payment below zero")
    """

    count: int = 1
    place: str = ""

    def release(self) -> NoReturn:
        """Release the record for another delivery. Ends the handler."""
        raise Released(f"released at delivery {self.count}")

    def reject(self, cause: str) -> NoReturn:
        """Make the record a dead letter with this cause. Ends the handler."""
        raise Rejected(cause)


MASK: Final = "***"

# Where SQLAlchemy begins to show a statement with its parameters, and PostgreSQL a row.
_SHOWS_VALUES: Final = re.compile(
    r"\s*(?:\[SQL: |\[parameters: |\(Background on |^(?:DETAIL|HINT|CONTEXT|LINE \d+): )", re.M
)
_QUOTED: Final = re.compile(r'"[^"]*"')
_WORD: Final = re.compile(r"\w+")
# A value that no type takes, and a text that is no SQL: PostgreSQL's codes of errors that quote what they met.
_QUOTES_VALUES: Final = ("22", "42601")
# Shorter words of a message are masked only where they are a whole word of a value: `an` is a part of many names.
_SHORTEST_PART: Final = 3


def shown_payload(schema: RegisteredSchema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload with `***` for personal values, whether they are sealed or open."""
    return {name: MASK if name in schema.personal or type(v) is Sealed else v for name, v in values.items()}


def masked_message(error: BaseException, arrivals: Iterable[Arrival] = ()) -> str:
    """Return an error's text without values of these records' personal events and without those a database quotes."""
    return _masked(_text(error), _personal_values(arrivals))


def masked_text(text: str, values: Iterable[Any]) -> str:
    """Return a text without the words of these values."""
    return _masked(text, [word for value in values for word in _texts(value)])


def masked_traceback(error: BaseException, arrivals: Iterable[Arrival] = ()) -> str:
    """Return an error and its causes with their tracebacks, each text as `masked_message` gives it."""
    values, parts = _personal_values(arrivals), list[str]()
    for one in _chain(error):
        parts += traceback.format_tb(one.__traceback__)
        parts.append(f"{type(one).__qualname__}: {_masked(_text(one), values)}\n")
    return "".join(parts).rstrip()


def without_quoted(text: str) -> str:
    """Return a text with `***` for what stands in double quotes."""
    return _QUOTED.sub(f'"{MASK}"', text)


def _chain(error: BaseException) -> list[BaseException]:
    """The causes first, as Python prints them."""
    chain = list[BaseException]()
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return chain[::-1]


def _text(error: BaseException) -> str:
    orig = getattr(error, "orig", None)  # SQLAlchemy's own text holds the parameters
    if isinstance(orig, BaseException):
        return _text(orig)
    # PostgreSQL's first part names constraints and columns; DETAIL holds the row.
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    text = _SHOWS_VALUES.split(primary or str(error), maxsplit=1)[0]
    quotes = isinstance(error, sqlite3.Error) or str(getattr(error, "sqlstate", "")).startswith(_QUOTES_VALUES)
    return without_quoted(text) if quotes else text


def _personal_values(arrivals: Iterable[Arrival]) -> list[str]:
    """Every value of events with personal fields: any of them may be part of the text."""
    data = (arrival.data for arrival in arrivals if arrival.type is not None)
    return [text for values in data if isinstance(values, Disclosed) for text in _texts(values)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, date | time):
        yield from (value.isoformat(), str(value))
    elif value is not None and not isinstance(value, bool):
        yield str(value).casefold()


def _masked(text: str, values: Sequence[str]) -> str:
    if not values:
        return text
    words = {word for value in values for word in _WORD.findall(value.casefold())}
    longer = [word for word in words if len(word) >= _SHORTEST_PART]

    def is_value(word: str) -> bool:
        part = len(word) >= _SHORTEST_PART and any(word in value for value in longer)
        return word in words or part or any(value in word for value in longer)

    return _WORD.sub(lambda match: MASK if is_value(match[0].casefold()) else match[0], text)


A = TypeVar("A", bound=Arrival)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Generic[A]):
    """A record that was given up.

    Attributes:
        arrival: The record.
        group: The group that gave it up.
        error: Why.
        attempts: How often the handler was called, 0 for a record that could not be read.
        time: When it was given up.

    Examples:
        >>> letter = DeadLetter(arrival=arrival, group="fraud", error=error, attempts=5, time=now)
    """

    arrival: A
    group: str
    error: Exception
    attempts: int
    time: datetime

    @property
    def message(self) -> str:
        """The error's text, personal values masked, and cut to what a header takes."""
        return masked_message(self.error, [self.arrival])[:DEAD_LETTER_MESSAGE_LENGTH]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Records of one partition that wait, and the age in seconds of the oldest of them (0 where none waits).

    Records are counted in offsets, which the markers of transactions use up too.
    """

    partition: int
    records: int
    seconds: float
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind, by partition.

    Examples:
        >>> subscriber.lag().records
        0
    """

    partitions: tuple[PartitionLag, ...]

    @property
    def records(self) -> int:
        """Records that wait in all partitions."""
        return sum(partition.records for partition in self.partitions)

    @property
    def seconds(self) -> float:
        """The age of the oldest record that waits, in seconds."""
        return max((partition.seconds for partition in self.partitions), default=0.0)


class Source(ABC, Generic[A]):
    """A log read by a group, in order within each key.

    Examples:
        >>> source: Source = StoreSource(store, review, category="payment")
    """

    @abstractmethod
    def checkpoint_name(self, arrival: A) -> str:
        """Return the name under which the inbox keeps a record: no other log of its group has it."""

    @abstractmethod
    def key_of(self, arrival: A) -> str:
        """Return what names the records that are handled in order: the stream of an event."""

    def open(self, on_revoked: Callable[[], None]) -> None:
        """Begin to read. `on_revoked` is called before places are given up, and ends the batch at hand."""

    @abstractmethod
    def poll(self, timeout: float) -> Sequence[A]:
        """Return the next batch once there is one, nothing after `timeout` seconds."""

    def prepare(self) -> None:
        """Fetch and decode what comes next while a handler works on the batch at hand. Returns at once."""

    def keep_alive(self) -> None:
        """Stay a member of the group while a handler works. Returns at once and fetches nothing."""

    def checkpoint(self, tx: Connection, arrivals: Sequence[A]) -> None:
        """Store the place after these arrivals in the handler's transaction, where that is its home."""

    def take(self, arrivals: Sequence[A]) -> Sequence[A]:
        """Take arrivals as done before they are handled, for good. Return those that may be handled."""
        return arrivals

    def acknowledge(self, arrivals: Sequence[A]) -> None:
        """Take arrivals as done: they do not arrive again after a restart."""

    def give_back(self, arrivals: Sequence[A]) -> None:
        """Take back the end of a batch that was halted: the next poll begins with it, as far as it is ours."""

    def dead_letter(self, letter: DeadLetter[A]) -> None:
        """Keep a record given up, untouched, with its cause. Returns once it is stored."""

    def postpone(self, letter: DeadLetter[A], after: timedelta) -> None:
        """Keep a record for another attempt after a while, untouched. Returns once it is stored."""

    @abstractmethod
    def lag(self) -> Lag:
        """Return how far the group is behind."""

    def close(self) -> None:
        """Leave the group at once. What was acknowledged stays so."""
