"""Names and places: streams, categories, expected versions, positions.

Arguments of a wrong type, refused where a program hands over data or configuration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from eventstore.errors import InvalidIdentifier, WrongType

# A stream name is an index key: 255 characters are at most 1,020 bytes of UTF-8, and PostgreSQL refuses
# b-tree entries above 2,704 bytes.
MAX_STREAM_LENGTH: Final = 255
MAX_NAME_LENGTH: Final = 100
# Kafka's own bound, for names that are made of declared ones.
MAX_TOPIC_LENGTH: Final = 249
# PostgreSQL cuts identifiers at 63 bytes without saying so: two long names would become one schema.
MAX_SCHEMA_LENGTH: Final = 63
MAX_SOURCE_LENGTH: Final = 255
# With a word in front as a schema, with a category and a branch behind as a topic (Kafka: at most 249 characters).
MAX_TENANT_LENGTH: Final = 40

_CATEGORY = re.compile(r"[a-z][a-z0-9_]*")
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_NOWHERE = re.compile(r"(?!)")
_CAMEL_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class StreamName:
    """The name of one stream, written `category-id`.

    Examples:
        >>> StreamName.parse("order-o1").id
        'o1'
    """

    category: str
    id: str

    def __post_init__(self) -> None:
        check_category(self.category)
        _check_stream_id(self.id, str(self))

    @classmethod
    def parse(cls, text: str) -> StreamName:
        """Split `category-id` at its first dash. Raises InvalidIdentifier if a part breaks the rules of names."""
        if not isinstance(text, str):
            raise _no_text("stream name", text)
        category, dash, stream_id = text.partition("-")
        if not dash:
            raise InvalidIdentifier(
                f"stream name {text[:80]!r} has no dash",
                remedy="write stream names as category-id, for example order-42",
            )
        return cls(category, stream_id)

    def __str__(self) -> str:
        return f"{self.category}-{self.id}"


def _check_stream_id(stream_id: str, stream: str) -> None:
    if not isinstance(stream_id, str):
        raise _no_text("stream id", stream_id)
    if not stream_id or not stream_id.isprintable():
        raise InvalidIdentifier(
            f"stream id {stream_id[:80]!r} is empty or holds characters that cannot be printed",
            remedy="use one or more printable characters. Spaces inside are fine, control characters are not",
        )
    if len(stream) > MAX_STREAM_LENGTH:
        raise InvalidIdentifier(
            f"stream name {stream[:40]!r}… is {len(stream)} characters long",
            remedy=f"keep category and id together within {MAX_STREAM_LENGTH} characters",
        )


def check_subject(subject: str, *, place: str | None = None) -> str:
    """Return the id of a subject of personal fields: printable text, as a stream's id. Raises InvalidIdentifier."""
    remedy = "name the subject of a personal field by an id, such as the key of a customer"
    return _checked_text(subject, "subject", MAX_STREAM_LENGTH, remedy, place)


def check_source(source: str) -> str:
    """Return the CloudEvents source of a store, or raise InvalidIdentifier: printable text, `/orders`."""
    remedy = "name the service that writes, as a path or a URL: /orders"
    return _checked_text(source, "source", MAX_SOURCE_LENGTH, remedy)


def _checked_text(text: str, what: str, longest: int, remedy: str, place: str | None = None) -> str:
    if isinstance(text, str) and 0 < len(text) <= longest and text.isprintable():
        return text
    raise InvalidIdentifier(
        f"{what} {str(text)[:80]!r} is not one to {longest} printable characters", remedy=remedy, place=place
    )


def checked_command_id(command_id: object) -> UUID:
    """Return the id of a command; InvalidIdentifier for what is no UUID, and would not make the command idempotent."""
    if isinstance(command_id, UUID):
        return command_id
    raise InvalidIdentifier(
        f"{command_id!r} is no id of a command", remedy="use a UUID: uuid4(), or uuid5(NAMESPACE, text) of a text"
    )


def check_category(category: str) -> str:
    """Return the category, or raise InvalidIdentifier: a lower-case word like `order` or `stock_item`."""
    return checked_name(category, _CATEGORY, "category", "a lower-case word such as order or stock_item")


def check_schema(schema: str) -> str:
    """Return the name of a database schema, or raise InvalidIdentifier: a lower-case word."""
    checked = checked_name(schema, _CATEGORY, "schema", "a lower-case word such as shop", limit=MAX_SCHEMA_LENGTH)
    if checked.startswith("pg_"):
        raise InvalidIdentifier(
            f"schema {schema!r} is reserved by PostgreSQL", remedy="use a name without pg_ in front"
        )
    return checked


def check_tenant(tenant: str) -> str:
    """Return the name of a tenant, or raise InvalidIdentifier: a lower-case word, for a schema and for topics."""
    return checked_name(tenant, _CATEGORY, "tenant", "a lower-case word such as acme", limit=MAX_TENANT_LENGTH)


def check_type_name(name: str) -> str:
    """Return the event type name, or raise InvalidIdentifier: lower-case words with dots, `order.placed`."""
    return checked_name(name, _TYPE_NAME, "event type name", "lower-case words joined by dots such as order.placed")


def check_topic(topic: str, *, limit: int = MAX_NAME_LENGTH) -> str:
    """Return the topic name, or raise InvalidIdentifier, by Kafka's own rule."""
    # The two names that a broker refuses although they are of the right characters.
    pattern = _NOWHERE if topic in (".", "..") else _TOPIC
    allowed = "letters, digits, dots, dashes and underscores, and not dots alone"
    return checked_name(topic, pattern, "topic", allowed, limit=limit)


def check_group(group: str) -> str:
    """Return the group name, or raise InvalidIdentifier; it becomes part of its dead-letter topic's name."""
    return checked_name(group, _TOPIC, "group", "letters, digits, dots, dashes and underscores")


def checked_name(
    text: str,
    pattern: re.Pattern[str],
    kind: str,
    allowed: str,
    *,
    limit: int = MAX_NAME_LENGTH,
    place: str | None = None,
) -> str:
    """Return a name that matches a pattern. Raises InvalidIdentifier if it does not, or is longer than `limit`."""
    if not isinstance(text, str):
        raise _no_text(kind, text)
    if pattern.fullmatch(text) and len(text) <= limit:
        return text
    raise InvalidIdentifier(
        f"{kind} {text[:80]!r} is not a valid name",
        remedy=f"use {allowed}, at most {limit} characters",
        place=place,
    )


def _no_text(kind: str, value: object) -> InvalidIdentifier:
    # Not made one here: 1, "1" and True would become one stream, and a UUID has several spellings.
    return InvalidIdentifier(
        f"{kind} {str(value)[:80]!r} is of type {type(value).__name__}, not a text",
        remedy=f"give a text: str({kind.split()[-1]})",
    )


def snake_case(name: str) -> str:
    """`StockItem` becomes `stock_item`."""
    return _CAMEL_BORDER.sub("_", name).lower()


class Expected(Enum):
    """What a writer may expect of a stream besides an exact version."""

    NO_STREAM = "no stream"
    STREAM_EXISTS = "an existing stream"
    ANY = "any version"

    def __str__(self) -> str:
        return self.value


ExpectedVersion = int | Expected
NO_STREAM: Final = Expected.NO_STREAM
STREAM_EXISTS: Final = Expected.STREAM_EXISTS
ANY: Final = Expected.ANY

# Versions start at 0, so the head of a stream without events is one below.
NO_VERSION: Final = -1
# In the place of a head: the stream was deleted, or archived, and no expectation is met by it.
DELETED_HEAD: Final = -2
ARCHIVED_HEAD: Final = -3
_MAX_VERSION: Final = 2**31 - 1


def accepted_heads(expected: ExpectedVersion) -> tuple[int, int]:
    """Return the lowest and highest head version (-1: no events) that satisfy an expectation."""
    match expected:
        case Expected.NO_STREAM:
            return NO_VERSION, NO_VERSION
        case Expected.STREAM_EXISTS:
            return 0, _MAX_VERSION
        case Expected.ANY:
            return NO_VERSION, _MAX_VERSION
        case version:
            return _exact_head(version)


def _exact_head(version: int) -> tuple[int, int]:
    if type(version) is int and 0 <= version <= _MAX_VERSION:
        return version, version
    raise InvalidIdentifier(
        f"{str(version)[:80]!r} is not a version a stream can have",
        remedy="expect a version from 0 upwards, NO_STREAM for a stream without events, or ANY",
    )


class Position(NamedTuple):
    """A place in the whole store. The pair orders events and is a reader's checkpoint.

    Examples:
        >>> last = store.append("order-o1", [paid], expected=ANY).positions[-1]
        >>> list(store.read_all(after=last))
        []
    """

    order_xid: int
    position: int

    @property
    def text(self) -> str:
        """The position as commands show and take it: `0:17`."""
        return f"{self.order_xid}:{self.position}"


T = TypeVar("T")


def require_type(value: object, kind: type | tuple[type, ...], name: str, *, takes: str) -> None:
    """Raise WrongType for a value of another type. ``takes`` says in words what the parameter takes."""
    if not isinstance(value, kind):
        raise _wrong(value, name, takes)


def require_like(value: object, member: str, name: str, *, takes: str) -> None:
    """Raise WrongType for a value that lacks a member of what the parameter takes, which may be of any class."""
    if not hasattr(value, member):
        raise _wrong(value, name, takes)


def require_sequence(values: Sequence[T], name: str, *, takes: str) -> Sequence[T]:
    """Return the values. Raise WrongType for what is no list or tuple, such as a text, which has letters."""
    require_type(values, (list, tuple), name, takes=takes)
    return values


def _wrong(value: object, name: str, takes: str) -> WrongType:
    return WrongType(f"{name} is a value of type {type(value).__name__}", remedy=f"give {takes}", place=name)
