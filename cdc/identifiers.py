"""Names of the source database: one validated shape, quoted the same way everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eventstore.errors import InvalidIdentifier

# PostgreSQL cuts identifiers at 63 bytes without saying so: two long names would become one.
MAX_IDENTIFIER: Final = 63

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLOT = re.compile(r"[a-z0-9_]+")
_CONNECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check_identifier(name: str, kind: str) -> str:
    """Return a role, schema, table or publication name, or raise InvalidIdentifier."""
    return _checked(name, _IDENTIFIER, kind, "letters, digits and underscores, not starting with a digit")


def check_slot(name: str) -> str:
    """Return a replication slot name, or raise InvalidIdentifier, by PostgreSQL's own rule."""
    return _checked(name, _SLOT, "slot", "lower-case letters, digits and underscores")


def check_connector_name(name: str) -> str:
    """Return a connector name that needs no escaping in Connect's paths, or raise InvalidIdentifier."""
    return _checked(name, _CONNECTOR, "connector", "letters, digits, dots, dashes and underscores")


def check_topic_prefix(name: str) -> str:
    """Return a topic prefix, or raise InvalidIdentifier, by Kafka's rule for topic names."""
    return _checked(name, _TOPIC_PREFIX, "topic prefix", "letters, digits, dots, dashes and underscores")


def _checked(name: str, pattern: re.Pattern[str], kind: str, wanted: str) -> str:
    if pattern.fullmatch(name) and len(name) <= MAX_IDENTIFIER:
        return name
    raise InvalidIdentifier(
        f"{kind} {name[:80]!r} is not a valid name",
        remedy=f"use {wanted}, at most {MAX_IDENTIFIER} characters",
    )


def quoted(identifier: str) -> str:
    """Write a checked identifier as SQL; the quotes keep its case and its reserved words."""
    return f'"{check_identifier(identifier, "identifier")}"'


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of the source, written `schema.table`."""

    schema: str
    table: str

    def __post_init__(self) -> None:
        check_identifier(self.schema, "schema")
        check_identifier(self.table, "table")

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Split `schema.table`; InvalidIdentifier where a part is missing or breaks a rule."""
        schema, dot, table = text.partition(".")
        if not dot:
            raise InvalidIdentifier(
                f"table {text[:80]!r} names no schema",
                remedy="write tables as schema.table, for example public.customers",
            )
        return cls(schema, table)

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
