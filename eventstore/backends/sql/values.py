"""Values and columns as every database takes them: moments with their instant, lists in parts that can be bound.

`keys`, `needed` and `optional` declare several columns of one kind. Tables and their migrations are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, DateTime, Dialect, Select, Text
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.types import TypeDecorator


def keys(*names: str) -> list[Column[Any]]:
    """Return columns of text that are a primary key together."""
    return [Column(name, Text, primary_key=True) for name in names]


def needed(kind: Any, *names: str) -> list[Column[Any]]:
    """Return columns of one type that always have a value."""
    return [Column(name, kind, nullable=False) for name in names]


def optional(kind: Any, *names: str) -> list[Column[Any]]:
    """Return columns of one type that may be null."""
    return [Column(name, kind) for name in names]


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC and read in UTC. Raises ValueError for a value without a time zone.

    `DateTime(timezone=True)` writes 12:00+02:00 as 12:00 on SQLite.

    Examples:
        >>> class Visit(Base):
        ...     __tablename__ = "visits"
        ...     id: Mapped[int] = mapped_column(primary_key=True)
        ...     at: Mapped[datetime] = mapped_column(UtcDateTime)
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        """The type of its values."""
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the moment {value.isoformat()} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC. SQLite's driver returns a value without time zone."""
        return None if value is None else in_utc(value)


def in_utc(moment: datetime) -> datetime:
    """Return a moment that a database gave back; SQLite's driver leaves out its zone, which is UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read_back(kind: Any, value: Any) -> Any:
    """What SQLite gives back of a value of a column type; a time without offset is UTC. None if the type refuses it."""
    sqlite = sqlite_dialect()
    write = kind.dialect_impl(sqlite).bind_processor(sqlite)
    try:
        moment = type(value).fromisoformat(write(value) if write else str(value))
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


T = TypeVar("T")


# Below SQLite's limit of bound values in every version (999 before 3.32).
_MOST_BOUND: Final = 500


def bindable(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut values into parts that any database takes in one statement."""
    for start in range(0, len(values), _MOST_BOUND):
        yield values[start : start + _MOST_BOUND]


def rows_in(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """Yield the rows of a query whose column has one of the values, however many values there are."""
    for part in bindable(list(values)):
        yield from connection.execute(query.where(column.in_(part)))
