"""Names of the source database: one validated shape, quoted the same way everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eventstore.errors import InvalidIdentifier
from eventstore.identifiers import MAX_TOPIC_LENGTH, checked_name

# PostgreSQL cuts identifiers at 63 bytes without saying so: two long names would become one.
MAX_IDENTIFIER: Final = 63

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLOT = re.compile(r"[a-z0-9_]+")
_CONNECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOPIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9]+)?\]")
_OF_TOPICS: Final = "letters, digits, dots, dashes and underscores"


def check_identifier(name: str, kind: str, *, place: str | None = None) -> str:
    """Return a schema, table or publication name, or raise InvalidIdentifier; `place` is the field it stands in."""
    return checked_name(
        name,
        _IDENTIFIER,
        kind,
        "letters, digits and underscores, not starting with a digit",
        limit=MAX_IDENTIFIER,
        place=place,
    )


def check_name(name: str, kind: str, *, place: str | None = None) -> str:
    """Return the name of a role or a database, or raise InvalidIdentifier: what PostgreSQL takes between quotes.

    But for what others on its way take for something else: Connect `${`, the driver `%`, readers of SQL the end of a
    line.
    """
    fits = 0 < len(name.encode(errors="replace")) <= MAX_IDENTIFIER
    if fits and name.isprintable() and "%" not in name and "${" not in name:
        return name
    remedy = f"use 1 to {MAX_IDENTIFIER} bytes of printable text, without % and ${{"
    raise InvalidIdentifier(f"{kind} {name[:80]!r} is not a valid name", remedy=remedy, place=place)


def check_slot(name: str) -> str:
    """Return a replication slot name, or raise InvalidIdentifier, by PostgreSQL's own rule."""
    return checked_name(
        name, _SLOT, "slot", "lower-case letters, digits and underscores", limit=MAX_IDENTIFIER, place="slot"
    )


def check_connector_name(name: str) -> str:
    """Return a connector name that needs no escaping in Connect's paths, or raise InvalidIdentifier."""
    return checked_name(name, _CONNECTOR, "connector", _OF_TOPICS, limit=MAX_IDENTIFIER, place="name")


def check_topic_prefix(name: str) -> str:
    """Return a topic prefix, or raise InvalidIdentifier, by Kafka's rule for topic names."""
    return checked_name(name, _TOPIC, "topic prefix", _OF_TOPICS, limit=MAX_IDENTIFIER, place="topic_prefix")


def check_host(name: str) -> str:
    """Return a host's name or address, or raise InvalidIdentifier: the connector puts it into a JDBC URL as it is."""
    if _HOST.fullmatch(name):
        return name
    raise InvalidIdentifier(
        "the host is neither a name nor an address",  # it is not shown: it may be a URL with a password
        remedy="write a host's name or address, IPv6 in brackets. Port, user and password have their own fields",
        place="host",
    )


def check_topic(name: str, place: str) -> str:
    """Return the name of a topic that stands in a field, or raise InvalidIdentifier, by Kafka's rule."""
    return checked_name(name, _TOPIC, "topic", _OF_TOPICS, place=place, limit=MAX_TOPIC_LENGTH)


def quoted(identifier: str) -> str:
    """Write a name as SQL: between quotes it keeps its case, reserved words and quotes of its own."""
    doubled = check_name(identifier, "identifier").replace('"', '""')
    return f'"{doubled}"'


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of the source, written `schema.table`."""

    schema: str
    table: str

    def __post_init__(self) -> None:
        check_identifier(self.schema, "schema")
        check_identifier(self.table, "table")

    @classmethod
    def parse(cls, text: str, *, place: str | None = None) -> TableName:
        """Split `schema.table`, which stands in the field `place`; InvalidIdentifier where a part breaks a rule."""
        schema, dot, table = text.partition(".")
        if not dot:
            raise InvalidIdentifier(
                f"table {text[:80]!r} names no schema",
                remedy="write tables as schema.table, for example public.customers",
                place=place,
            )
        return cls(check_identifier(schema, "schema", place=place), check_identifier(table, "table", place=place))

    @property
    def quoted(self) -> str:
        """The name as SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def pattern(self) -> str:
        """The name as the regular expression that Debezium's include lists expect."""
        return re.escape(str(self))

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"
