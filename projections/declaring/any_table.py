"""The base of all tables: rows under a key, with typed columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self

from eventstore.event_types import EventType
from projections.declaring.columns import ColumnType, Setters
from projections.declaring.naming import checked_columns, listed
from projections.declaring.predicates import Predicate
from projections.declaring.timing.promises import Retain
from projections.errors import InvalidDefinition


def require_flat(column: str, kind: ColumnType, *, place: str) -> None:
    """Refuse a list, a map or a record as a part of a key; InvalidDefinition."""
    if kind.shape:
        raise InvalidDefinition(
            f"key column {column!r} is {kind.shape}, and keys are compared by flat values",
            remedy="choose a flat column, or take a part of it in a view that this one reads",
            place=place,
        )


def sealed_parts(column: str) -> dict[str, ColumnType]:
    """The state's columns for the sealed values of a personal column, whose own column holds values never sealed."""
    return {
        f"_sealed_{column}": ColumnType("binary"),
        key_of(column): ColumnType("string"),
        f"_schema_{column}": ColumnType("long"),
    }


def key_of(column: str) -> str:
    """The column with the id of the key that a personal value is sealed under, 32 hexadecimal digits."""
    return f"_key_{column}"


@dataclass(frozen=True)
class AnyTable:
    """A table over a topic, or the rows of a view that another view reads.

    ``condition`` selects the rows of a table that `Table.where` made of ``unfiltered``. ``record_names`` has other
    names of columns in records.
    """

    append_only: ClassVar[bool] = False  # a row never changes after it arrived
    holds_versions: ClassVar[bool] = False  # the state has every version of a row, for a look-up by time
    has_event_time: ClassVar[bool] = False  # each row has the time of an event
    is_dense: ClassVar[bool] = False  # every event of a stream counts: a missing one is an error
    sent_again: ClassVar[bool] = False  # a source may send changes again that are older than a deletion

    topic: str
    key: tuple[str, ...]
    columns: Mapping[str, ColumnType]
    name: str | None = field(default=None, kw_only=True)
    condition: Predicate | None = field(default=None, kw_only=True)
    unfiltered: Self | None = field(default=None, kw_only=True)
    record_names: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        checked_columns(tuple(self.columns), what="column")
        for column in self.key:
            require_flat(column, self.columns[column], place=f"topic {self.topic}")

    def __repr__(self) -> str:
        """One line: the topic and the columns."""
        some = "" if self.condition is None else ", of some rows"
        return f"<{type(self).__name__} {self.topic}: {listed(tuple(self.columns))}{some}>"

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns that are not part of the key."""
        return tuple(c for c in self.columns if c not in self.key)

    def record_name(self, column: str) -> str:
        """The name that records have for a column."""
        return self.record_names.get(column, column)

    @property
    def whole(self) -> Self:
        """The table with all rows, whose state this one reads."""
        return self.unfiltered or self

    def require(self, column: str) -> ColumnType:
        """Return the type of a column. Raises InvalidDefinition, which names the columns there are."""
        if column in self.columns:
            return self.columns[column]
        raise InvalidDefinition(
            f"table over topic {self.topic!r} has no column {column!r}",
            remedy=f"its columns are: {', '.join(self.columns)}",
            place=self.name,
            code="unknown-column",
        )

    @property
    def sometimes_unset(self) -> tuple[str, ...]:
        """Columns that the newest record of a key may leave unchanged. Staging marks when each was last set."""
        return ()

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that distinguish rows of the state: the key, if there is one row for each key."""
        return self.key

    @property
    def key_may_be_null(self) -> bool:
        """True if a part of the key may be null."""
        return False

    @property
    def is_avro(self) -> bool:
        """True if its records are change events in Avro."""
        return False

    @property
    def is_headed(self) -> bool:
        """True if its records are read with headers: event time, source, or the id that values are sealed for."""
        return bool(self.source or self.personal)

    @property
    def category(self) -> str | None:
        """The category of the streams whose events make the rows, None for rows of anything else."""
        return None

    @property
    def source(self) -> str | None:
        """The service whose events are meant, None for whatever the topic holds."""
        return None

    def event_types(self) -> tuple[EventType, ...]:
        """The event types the topic may hold."""
        return ()

    @property
    def entries(self) -> tuple[str, ...]:
        """The columns of the key that hold an event's id@version."""
        return ()

    @property
    def retain(self) -> Retain | None:
        """The promise by which rows are forgotten, None where they stay."""
        return None

    @property
    def set_by(self) -> Setters:
        """The setters of each column that events set."""
        return {}

    @property
    def may_be_personal(self) -> bool:
        """True if a value may be of a person, as far as the table knows."""
        return bool(self.personal)

    @property
    def lost_at_horizon(self) -> tuple[str, ...] | None:
        """The columns that deleted rows lose at the horizon. Without columns rows are deleted, with None all stay."""
        return ()

    @property
    def _values(self) -> tuple[str, ...]:
        """What the state holds of a row, without its key."""
        return tuple(column for column in self.stored if column not in self.row_key)

    @cached_property
    def personal(self) -> tuple[str, ...]:
        """Columns whose values are about a person, and are sealed by that person's key wherever they are stored."""
        return ()

    @cached_property
    def sealed(self) -> Mapping[str, ColumnType]:
        """The columns of the state for personal columns: the sealed value, its key's id, the schema that wrote it."""
        return {hidden: kind for column in self.personal for hidden, kind in sealed_parts(column).items()}

    def parts(self, column: str) -> tuple[str, ...]:
        """The columns of the state that are one column of the table, and are set together."""
        return (column, *(sealed_parts(column) if column in self.personal else ()))

    @property
    def hidden(self) -> Mapping[str, ColumnType]:
        """Columns of the state that only the engine needs."""
        return self.sealed

    @property
    def stored(self) -> Mapping[str, ColumnType]:
        """Every column of the state but a row's position."""
        return {**self.columns, **self.hidden}

    @property
    def sliced(self) -> Mapping[str, ColumnType]:
        """The columns of the rows from which a view function's DataFrame is made."""
        return {**self.columns, **self.sealed}

    @property
    def opened(self) -> Mapping[str, ColumnType]:
        """The columns of the same rows once personal values are open."""
        return {name: column for name, column in self.sliced.items() if name not in self.sealed}

    def signature(self) -> str:
        """A text that changes whenever the meaning of the table's rows changes. Part of a group's fingerprint."""
        columns = sorted((c, t.said) for c, t in {**self.columns, **self.sealed}.items())
        some = "" if self.condition is None else f"|where {self.condition}"
        some += f"|named {sorted(self.record_names.items())}" if self.record_names else ""
        return f"{type(self).__name__}|{self.topic}|{self.key}|{columns}{some}"
