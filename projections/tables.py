"""Tables a user declares over topics: the current row of every key, by fold or by changelog.

Nothing here imports Spark: a declaration says which topic, which columns, which key, and is checked when it is made.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from eventstore.aggregate import Aggregate
from eventstore.event_types import EventType, event_type_of
from projections.columns import ColumnType, decimal_type, from_avro, from_python
from projections.errors import InvalidDefinition, UnknownColumn

IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,39}")


def checked_identifier(name: str, *, what: str) -> str:
    """The name itself, when it may become part of a SQL table or column name."""
    if IDENTIFIER.fullmatch(name):
        return name
    raise InvalidDefinition(
        f"{what} {name!r} is not a usable name",
        remedy="use lower-case letters, digits and underscores, a letter first, at most 40",
    )


def set_at(column: str) -> str:
    """The staging column that tells at which position a column was last set in a batch; null where it was not."""
    return f"_at_{column}"


@dataclass(frozen=True)
class Setter:
    """One event type that sets a column: from a field of the event, or to a constant."""

    event: EventType
    field: str | None
    value: str | int | bool | None = None

    def column_type(self) -> ColumnType:
        """The type of what this setter writes."""
        if self.field is None:
            return from_python(type(self.value), place=self.event.name)
        return from_avro(self._field_schema(self.field), place=f"{self.event.name}.{self.field}")

    def _field_schema(self, name: str) -> Any:
        for candidate in self.event.schema["fields"]:
            if candidate["name"] == name:
                return candidate["type"]
        known = ", ".join(f["name"] for f in self.event.schema["fields"])
        raise UnknownColumn(f"event {self.event.name} has no field {name!r}", remedy=f"its fields are: {known}")


@dataclass(frozen=True)
class On:
    """The left half of a declared column: ``on(Order.Placed).take("amount")``."""

    event: EventType

    def take(self, name: str) -> Setter:
        """Set the column from a field of the event."""
        setter = Setter(self.event, name)
        setter.column_type()
        return setter

    def set(self, value: str | int | bool) -> Setter:
        """Set the column to a constant."""
        return Setter(self.event, None, value)


def on(event: type) -> On:
    """Start a declared column: what the given event class does to it."""
    return On(event_type_of(event))


@dataclass(frozen=True)
class Table:
    """The current rows of one topic.

    ``name`` is the parameter name a view gives it, unless set. ``columns`` maps each column, the key included, to its
    type. The state of a table is shared by every view of a group that uses it.
    """

    topic: str
    key: tuple[str, ...]
    columns: Mapping[str, ColumnType]
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for column in self.columns:
            checked_identifier(column, what="column")

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns that are not part of the key."""
        return tuple(c for c in self.columns if c not in self.key)

    def require(self, column: str) -> ColumnType:
        """The type of a column, or UnknownColumn naming those there are."""
        if column in self.columns:
            return self.columns[column]
        raise UnknownColumn(
            f"table over topic {self.topic!r} has no column {column!r}",
            remedy=f"its columns are: {', '.join(self.columns)}",
            place=self.name,
        )

    @property
    def sometimes_unset(self) -> tuple[str, ...]:
        """Columns that the newest record of a key may leave as they were; staging tells where each was last set."""
        return ()

    def signature(self) -> str:
        """A text that changes whenever the meaning of the table's rows changes; part of a group's fingerprint."""
        return f"{type(self).__name__}|{self.topic}|{self.key}|{sorted((c, t.ddl) for c, t in self.columns.items())}"

    @staticmethod
    def from_events(
        aggregate: type[Aggregate],
        *,
        key: str,
        columns: Mapping[str, Setter | Sequence[Setter]] | None = None,
        name: str | None = None,
        topic: str | None = None,
    ) -> EventTable:
        """The latest state of each aggregate, keyed by the aggregate's id.

        With ``columns`` the fold runs inside the JVM: the last event that sets a column decides it. Without, the
        aggregate's own ``evolve`` folds its state fields in Python workers.
        """
        topic = topic or aggregate.category
        if columns is None:
            return _evolved_table(aggregate, name=name, topic=topic, key=key)
        return _declared_table(aggregate, columns, name=name, topic=topic, key=key)

    @staticmethod
    def from_changelog(model: Any, *, topic: str, name: str | None = None) -> ChangelogTable:
        """The current rows of an ordinary table that Debezium captures.

        ``model`` is a SQLAlchemy table or mapped class: its columns give the types, its primary key the key.
        """
        table = getattr(model, "__table__", model)
        columns = {c.name: _sql_column_type(c, place=f"{table.name}.{c.name}") for c in table.columns}
        key = tuple(c.name for c in table.primary_key.columns)
        if not key:
            raise InvalidDefinition(f"table {table.name!r} has no primary key", remedy="declare one: it keys the topic")
        return ChangelogTable(topic, key, columns, name=name)


@dataclass(frozen=True)
class EventTable(Table):
    """A table folded from an event topic; ``setters`` is None where the aggregate's own evolve folds."""

    aggregate: type[Aggregate]
    setters: Mapping[str, tuple[Setter, ...]] | None

    @property
    def sometimes_unset(self) -> tuple[str, ...]:
        """Every declared column: an event sets some of them."""
        return tuple(self.setters or ())

    def event_types(self) -> tuple[EventType, ...]:
        """The event types the topic may hold."""
        return tuple(self.aggregate.event_types.values())

    def signature(self) -> str:
        """Adds the fold: declared setters, or the source of the aggregate."""
        if self.setters is None:
            fold = hashlib.sha256(inspect.getsource(self.aggregate).encode()).hexdigest()
        else:
            fold = str([(c, [(s.event.name, s.field, s.value) for s in ss]) for c, ss in sorted(self.setters.items())])
        return f"{super().signature()}|{self.aggregate.category}|{fold}"


@dataclass(frozen=True)
class ChangelogTable(Table):
    """A table captured by Debezium: last row per key by source position."""

    @property
    def sometimes_unset(self) -> tuple[str, ...]:
        """Columns of variable length: PostgreSQL sends no TOAST value that an update did not touch."""
        return tuple(c for c in self.payload if self.columns[c].kind in {"string", "binary", "decimal"})


def _declared_table(
    aggregate: type[Aggregate],
    declared: Mapping[str, Setter | Sequence[Setter]],
    *,
    name: str | None,
    topic: str,
    key: str,
) -> EventTable:
    setters = {c: (s,) if isinstance(s, Setter) else tuple(s) for c, s in declared.items()}
    columns = {key: ColumnType("string")}
    for column, choices in setters.items():
        columns[column] = _agreed_type(column, choices, place=aggregate.__name__)
    _require_own_events(aggregate, setters)
    return EventTable(topic, (key,), columns, name=name, aggregate=aggregate, setters=setters)


def _agreed_type(column: str, setters: Sequence[Setter], *, place: str) -> ColumnType:
    kinds = {setter.column_type() for setter in setters}
    if len(kinds) == 1:
        return kinds.pop()
    raise InvalidDefinition(
        f"column {column!r} is set to different types: {', '.join(sorted(k.ddl for k in kinds)) or 'none'}",
        remedy="give every setter of a column the same type, and at least one setter",
        place=place,
    )


def _require_own_events(aggregate: type[Aggregate], setters: Mapping[str, Sequence[Setter]]) -> None:
    known = set(aggregate.event_types)
    for column, choices in setters.items():
        for setter in choices:
            if setter.event.name not in known:
                raise InvalidDefinition(
                    f"column {column!r} is set by {setter.event.name}, which is no event of {aggregate.__name__}",
                    remedy=f"its events are: {', '.join(sorted(known))}",
                )


def _evolved_table(aggregate: type[Aggregate], *, name: str | None, topic: str, key: str) -> EventTable:
    columns = {key: ColumnType("string")}
    for state_field, annotation in aggregate.state_fields().items():
        columns[state_field] = from_python(annotation, place=f"{aggregate.__name__}.{state_field}")
    return EventTable(topic, (key,), columns, name=name, aggregate=aggregate, setters=None)


def _sql_column_type(column: Any, *, place: str) -> ColumnType:
    kind = column.type.python_type
    if kind in (dict, list):
        return ColumnType("string")  # JSON travels as its text
    if kind is not Decimal:
        return from_python(kind, place=place)
    if column.type.precision is None:
        raise InvalidDefinition(
            "a numeric column without precision holds more digits than any column here",
            remedy="declare its digits, for example Numeric(18, 4): values would be rounded silently",
            place=place,
        )
    return decimal_type(column.type.precision, column.type.scale)
