"""The versions of a row that is folded from events: what each event of its stream set, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from eventstore.aggregates.aggregate import Aggregate
from eventstore.event_types import EventType
from projections.declaring.columns import ColumnType
from projections.declaring.setters import Setters, taken_from_personal
from projections.declaring.tables import VALID_FROM, EventTable, Table

SETS: Final = "_sets"  # the names of the columns that an event sets, with commas between them
# Of a version that a view's function is handed: since when it is valid, null from the beginning, and until when.
FROM, TO = "_from", "_to"


@dataclass(frozen=True, repr=False)
class EventVersions(Table):
    """Every event of the streams that a table is ``folded`` from, each with the columns that it sets.

    A state row is an event: ``key`` is the stream's, and the event's version (``_pos``) distinguishes them. Events that
    set no column are rows too. Otherwise a missing event would look like one of them.
    """

    append_only: ClassVar[bool] = True  # until the stream is deleted
    is_dense: ClassVar[bool] = True

    folded: EventTable

    @staticmethod
    def of(table: EventTable) -> EventVersions:
        """The versions of a table with declared columns."""
        return EventVersions(table.topic, table.key, table.columns, name=table.name, folded=table)

    @property
    def aggregate(self) -> type[Aggregate]:
        """Whose streams they are."""
        return self.folded.aggregate

    @property
    def category(self) -> str:
        """That of the aggregate."""
        return self.aggregate.category

    @property
    def is_headed(self) -> bool:
        """True: a version is valid from the time of its record."""
        return True

    @property
    def set_by(self) -> Setters:
        """What sets each column."""
        return self.folded.set_by

    @property
    def source(self) -> str | None:
        """Whose events are meant, None for whatever the topic holds."""
        return self.folded.source

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key and the event's version."""
        return (*self.key, "_pos")

    @property
    def lost_at_horizon(self) -> tuple[str, ...]:
        """All values, as of a table of events."""
        return self._values

    @cached_property
    def personal(self) -> tuple[str, ...]:
        """The columns that a personal field sets."""
        return taken_from_personal(self.set_by)

    @property
    def hidden(self) -> Mapping[str, ColumnType]:
        """When the event was recorded, in microseconds since 1970, and which columns it sets."""
        return {VALID_FROM: ColumnType("long"), SETS: ColumnType("string"), **self.sealed}

    @property
    def sliced(self) -> Mapping[str, ColumnType]:
        """All of it, events of deleted streams too: one of them says that the stream is deleted."""
        return {**self.stored, "_pos": ColumnType("long"), "_deleted": ColumnType("boolean")}

    def event_types(self) -> tuple[EventType, ...]:
        """The event types the topic may hold."""
        return self.folded.event_types()

    def signature(self) -> str:
        """That of the table, whose versions these are."""
        return f"{super().signature()}|{self.folded.signature()}"
