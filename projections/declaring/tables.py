"""Tables a user declares over topics: the current row of every key, by fold or by changelog.

Nothing here imports Spark: a declaration says which topic, which columns, which key, and is checked when it is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self, overload

from eventstore.aggregates.aggregate import Aggregate
from eventstore.event_types import EventType
from eventstore.identifiers import require_type
from projections.declaring.any_table import AnyTable
from projections.declaring.captured import (
    NO_SHAPES,
    key_and_columns,
    nullable_if_absent,
    nullable_keys,
    record_names,
    require_avro_names,
)
from projections.declaring.columns import ColumnType, Declared, Setters, as_setters, placeholders, taken_from_personal
from projections.declaring.event_fields import check_condition
from projections.declaring.event_tables import cogrouped, folded_columns, require_aggregates, topic_of
from projections.declaring.predicates import Predicate
from projections.declaring.views import View
from projections.errors import InvalidDefinition

ChangeEncoding = Literal["json", "json-with-schemas", "avro"]
VALID_FROM = "_valid_from"  # of a version, in microseconds since 1970
RECORD_KEY = "_record_key"  # of a row of a view topic
EVENT_TIME = "_time"  # of a stream's row, likewise
# How far a snapshot's position is moved down: half of what a bigint holds; a position counts bytes and stays below it.
BELOW_STREAMED = 1 << 62
SETS: Final = "_sets"  # the names of the columns that an event sets, with commas between them
# Of a version that a view's function is handed: since when it is valid, null from the beginning, and until when.
FROM, TO = "_from", "_to"


def set_at(column: str) -> str:
    """The staging column that tells at which position a column was last set in a batch; null where it was not."""
    return f"_at_{column}"


@dataclass(frozen=True, repr=False)
class Table(AnyTable):
    """The current rows of one topic. Make it by `from_events`, `from_changelog`, `from_view_topic` or `versions_of`.

    All views of a group share its state. ``name`` is by default a view's parameter. ``condition`` selects the rows of a
    table that `where` made of ``unfiltered``. ``record_names`` has other names of columns in records.

    Examples:
        >>> large_orders = Table.from_events(Order, key="order_id").where(field("amount") > 900)
    """

    def where(self, condition: Predicate) -> Self:
        """Return the table with only those rows that meet a condition on their columns.

        Views see no other rows. Raises InvalidDefinition, or InvalidPredicate for a column that cannot be compared.
        """
        check_condition(
            condition, self.columns, require=self.require, personal=self.personal, place=f"topic {self.topic}"
        )
        both = condition if self.condition is None else self.condition & condition
        return replace(self, condition=both, unfiltered=self.whole)

    @overload
    @staticmethod
    def from_events(
        aggregate: type[Aggregate],
        /,
        *,
        key: str,
        columns: Declared | None = None,
        name: str | None = None,
        topic: str | None = None,
        source: str | None = None,
    ) -> EventTable: ...

    @overload
    @staticmethod
    def from_events(
        aggregate: type[Aggregate],
        other: type[Aggregate],
        /,
        *others: type[Aggregate],
        key: str,
        columns: Declared | None = None,
        name: str,
        source: str | None = None,
    ) -> View: ...

    @staticmethod
    def from_events(
        *aggregates: type[Aggregate],
        key: str,
        columns: Declared | None = None,
        name: str | None = None,
        topic: str | None = None,
        source: str | None = None,
    ) -> EventTable | View:
        """Return the latest state of each aggregate, keyed by the aggregate's id.

        Args:
            key: The column of the aggregate's id.
            columns: The events that set each column. Without them, `evolve` folds the state's fields in Python workers.
            name: The table's name. Several aggregates need one: they are one view, with a row if any has a stream.
            topic: The topic, by default that of ``source``. InvalidIdentifier is raised for a source that gives none.
            source: The service whose events are read. Those of others are bad records.

        Examples:
            >>> Table.from_events(Order, key="order_id", columns={"amount": on(Order.Placed).take("amount")})
        """
        require_aggregates(aggregates)
        require_type(key, str, "key", takes="the name of the column with the aggregate's id")
        setters = None if columns is None else as_setters(columns)
        if len(aggregates) == 1:
            return EventTable.of(aggregates[0], setters, key=key, name=name, topic=topic, source=source)
        return cogrouped(
            aggregates, key=key, columns=setters, name=name, topic=topic,
            table=lambda aggregate, own: EventTable.of(aggregate, own, key=key, source=source),
        )  # fmt: skip

    @staticmethod
    def from_changelog(
        model: Any,
        *,
        topic: str,
        name: str | None = None,
        encoding: ChangeEncoding = "json",
        full_identity: bool = False,
        shapes: Mapping[str, Any] = NO_SHAPES,
        null_if_absent: Sequence[str] = (),
    ) -> ChangelogTable:
        """Return the current rows of an ordinary table that Debezium captures.

        Types without a column type become text: JSON as it is, times of day and intervals as ISO 8601, bits as digits.

        Args:
            model: A SQLAlchemy table or mapped class. Columns have the names of its attributes, or their ``key=``.
            full_identity: The table has REPLICA IDENTITY FULL. Raises InvalidDefinition if a column needs it.
            shapes: Python types of JSON columns: lists, dictionaries, classes of fields. They become nested columns.
            null_if_absent: Columns that are null in a record without them. A record without another column is bad.

        Examples:
            >>> Table.from_changelog(Customer, topic="shop.public.customers")
        """
        key, columns = key_and_columns(model, full_identity=full_identity, shapes=shapes)
        absent, renamed = nullable_if_absent(model, null_if_absent), record_names(model)
        return ChangelogTable(
            topic, key, columns, name=name, encoding=encoding, null_if_absent=absent, record_names=renamed
        )

    @staticmethod
    def from_view_topic(
        model: Any, *, topic: str, name: str | None = None, shapes: Mapping[str, Any] = NO_SHAPES
    ) -> ViewTopicTable:
        """Return the rows of a view that another group publishes in a view topic.

        ``model`` is a SQLAlchemy table or mapped class with the view's key and some or all of its columns. A key column
        that may be null says ``nullable=True``. A nested column is an ARRAY, or JSON with its shape.
        """
        key, columns = key_and_columns(model, full_identity=True, shapes=shapes)
        nullable, renamed = nullable_keys(model), record_names(model)
        return ViewTopicTable(topic, key, columns, name=name, nullable=nullable, record_names=renamed)

    @staticmethod
    def versions_of(
        model: Any,
        *,
        topic: str,
        name: str | None = None,
        encoding: ChangeEncoding = "json",
        full_identity: bool = False,
        shapes: Mapping[str, Any] = NO_SHAPES,
        null_if_absent: Sequence[str] = (),
    ) -> VersionTable:
        """Return every version that the rows of a captured table ever had, with the time since when it is valid.

        For ``join_versions``. Building the views refuses a compacted topic. Arguments are those of `from_changelog`.
        """
        key, columns = key_and_columns(model, full_identity=full_identity, shapes=shapes)
        absent, renamed = nullable_if_absent(model, null_if_absent), record_names(model)
        return VersionTable(
            topic, key, columns, name=name, encoding=encoding, null_if_absent=absent, record_names=renamed
        )


@dataclass(frozen=True, repr=False)
class OfEvents(Table):
    """A table or stream of the events of one aggregate."""

    aggregate: type[Aggregate]

    @property
    def lost_at_horizon(self) -> tuple[str, ...]:
        """All values: nothing else tells a repeated first event from the first one of a new stream."""
        return self._values

    @property
    def category(self) -> str:
        """That of the aggregate."""
        return self.aggregate.category

    @cached_property
    def personal(self) -> tuple[str, ...]:
        """The columns that a personal field sets."""
        return taken_from_personal(self.set_by)

    def event_types(self) -> tuple[EventType, ...]:
        """The event types the topic may hold, those that are no rows included."""
        return tuple(self.aggregate.event_types.values())


@dataclass(frozen=True, repr=False)
class EventTable(OfEvents):
    """A table folded from a topic: by the aggregate's evolve without ``setters``, of any source without ``source``."""

    is_dense: ClassVar[bool] = True  # a fold that jumps over an event is wrong

    setters: Setters | None
    source: str | None = field(default=None, kw_only=True)

    @staticmethod
    def of(
        aggregate: type[Aggregate],
        setters: Setters | None,
        *,
        key: str,
        name: str | None = None,
        topic: str | None = None,
        source: str | None = None,
    ) -> EventTable:
        """Return the table of one aggregate. Raises InvalidDefinition."""
        return EventTable(
            topic or topic_of(aggregate, source), (key,), folded_columns(aggregate, setters, key=key), name=name,
            aggregate=aggregate, setters=setters, source=source,
        )  # fmt: skip

    @property
    def sometimes_unset(self) -> tuple[str, ...]:
        """Every declared column: an event sets some of them."""
        return tuple(self.set_by)

    @property
    def set_by(self) -> Setters:
        """The declared setters; none where `evolve` folds."""
        return self.setters or {}

    def signature(self) -> str:
        """Adds the fold: declared setters, or the source of the aggregate."""
        if self.setters is None:
            fold = hashlib.sha256(self.aggregate.state_source().encode()).hexdigest()
        else:
            fold = str([(c, [(s.event.name, s.field, s.value) for s in ss]) for c, ss in sorted(self.setters.items())])
        own = f"{self.aggregate.category}|{fold}{placeholders(self.set_by)}"
        own += "" if self.source is None else f"|source {self.source}"
        return f"{super().signature()}|{own}"


@dataclass(frozen=True, repr=False)
class CapturedTable(Table):
    """What is read from the change events of a captured table; a row may lack those columns of ``null_if_absent``."""

    encoding: ChangeEncoding = field(default="json", kw_only=True)
    null_if_absent: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def is_avro(self) -> bool:
        """True if they are Avro and not JSON."""
        return self.encoding == "avro"

    @property
    def never_absent(self) -> tuple[str, ...]:
        """The columns outside the key that every row must have."""
        return tuple(column for column in self.payload if column not in self.null_if_absent)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_avro:
            require_avro_names(self.topic, [self.record_name(column) for column in self.columns])

    def signature(self) -> str:
        """Adds which columns are null in a row that lacks them."""
        return super().signature() + (f"|{sorted(self.null_if_absent)}" if self.null_if_absent else "")


@dataclass(frozen=True, repr=False)
class ChangelogTable(CapturedTable):
    """A table captured by Debezium: last row per key by source position."""

    sent_again: ClassVar[bool] = True  # by a connector that is started again

    def versions(self) -> VersionTable:
        """The versions that its rows ever had."""
        return VersionTable(
            self.topic, self.key, self.columns,
            encoding=self.encoding, null_if_absent=self.null_if_absent, record_names=self.record_names,
        )  # fmt: skip

    @property
    def sometimes_unset(self) -> tuple[str, ...]:
        """Columns of variable length: PostgreSQL sends no TOAST value that an update did not touch."""
        return _of_variable_length(self)


@dataclass(frozen=True, repr=False)
class ViewTopicTable(Table):
    """The rows of a view topic: the last record of each key. ``nullable`` are key columns that may be null."""

    nullable: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key, or where a part of it may be null, the record's: no database takes null for part of a key."""
        return (RECORD_KEY,) if self.nullable else self.key

    @property
    def key_may_be_null(self) -> bool:
        """True if the publishing view has a key of that kind."""
        return bool(self.nullable)

    @property
    def may_be_personal(self) -> bool:
        """True: the topic does not say what the other group's view is made of."""
        return True

    @property
    def hidden(self) -> Mapping[str, ColumnType]:
        """The record's key as text, where it tells rows apart."""
        return {RECORD_KEY: ColumnType("string")} if self.nullable else {}

    def signature(self) -> str:
        """Adds which key columns may be null."""
        return f"{super().signature()}|{self.nullable}"


@dataclass(frozen=True, repr=False)
class VersionTable(CapturedTable):
    """The row versions of a table captured by Debezium; ``key`` is the row's, a state row is a version of it.

    A version is valid from its transaction's commit, in microseconds since 1970 (``_valid_from``), until one at a later
    source position is. A snapshot's has a position below 0. ``_unset`` names the columns that its record did not carry.
    """

    append_only: ClassVar[bool] = True  # the next version ends one, and does not change it
    holds_versions: ClassVar[bool] = True

    def where(self, condition: Predicate) -> Self:
        """Refuse a condition. Raises InvalidDefinition."""
        raise InvalidDefinition(
            "a table of versions takes no condition: one that does not meet it would still end the one before",
            remedy="filter the result of join_versions in the view's function",
            place=f"topic {self.topic}",
        )

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key and the version's place in the source."""
        return (*self.key, "_epoch", "_pos")

    @property
    def lost_at_horizon(self) -> None:
        """Nothing: a deletion ends a version, and is history as that is."""

    @property
    def hidden(self) -> Mapping[str, ColumnType]:
        """Since when a version is valid, and which of its columns take the previous version's value."""
        return {VALID_FROM: ColumnType("long"), "_unset": ColumnType("string")}

    @property
    def sliced(self) -> Mapping[str, ColumnType]:
        """All of it, deleted versions too: what is valid when follows from a key's versions together."""
        long = ColumnType("long")
        return {**self.stored, "_epoch": long, "_pos": long, "_deleted": ColumnType("boolean")}

    @property
    def sometimes_unavailable(self) -> tuple[str, ...]:
        """Columns whose value a change event may leave out (TOAST)."""
        return _of_variable_length(self)


def _of_variable_length(table: AnyTable) -> tuple[str, ...]:
    return tuple(c for c in table.payload if table.columns[c].varies_in_length)
