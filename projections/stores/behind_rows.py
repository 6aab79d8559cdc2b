"""Rows of a view as a person looks at them, and the rows of state that one of them was made of; without Spark.

The view function itself is not run: a row comes from the root's row of its key and from the rows that references reach
from it, or from the rows of its partition. These carry the place of the record that set them last.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, Protocol

import sqlalchemy as sa

from eventstore.delivery.source import MASK
from projections.declaring.any_table import AnyTable
from projections.declaring.columns import ColumnType, Kind
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.tables import EVENT_TIME, VALID_FROM, Table
from projections.declaring.views import View, view_behind, with_noted
from projections.errors import InvalidDefinition
from projections.planning.planner import plan
from projections.stores.dialects import NameSpace
from projections.stores.layout import state_table, view_table
from projections.stores.runs import Run, RunState
from projections.stores.sql import TableStore

Kinds = Literal["views", "tables"]
COUNTED: Final = 100_000
"""Rows are counted up to here: a larger view says that it has more."""

_LIMIT: Final = 20
_DEPTH: Final = 5  # views that read views that read views

_PARSED: Final[Mapping[Kind, Callable[[str], Any]]] = {
    "string": str, "int": int, "long": int, "double": float, "boolean": lambda text: text.lower() == "true",
    "decimal": Decimal, "date": dt.date.fromisoformat, "timestamp": dt.datetime.fromisoformat, "binary": bytes.fromhex,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ViewRows:
    """Rows of a view, at most so many as were asked for; `total` counts up to `COUNTED`.

    `personal` are the columns whose values may be of a person, and are not to be shown.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    total: int
    personal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row that a view's row was made of, and the record that set it last; `reached` says from where it was found.

    `stream` is the stream of an event table's row. `of_view` names the view whose row it is, which has no record.
    `personal` are the columns whose values may be of a person, and are not to be shown.
    """

    table: str
    reached: str
    key: Mapping[str, Any]
    values: Mapping[str, Any]
    topic: str | None = None
    offset: int | None = None
    deleted: bool = False
    stream: str | None = None
    of_view: str | None = None
    personal: tuple[str, ...] = ()
    time: int | None = None  # of its event, in microseconds since 1970

    @property
    def shown(self) -> dict[str, Any]:
        """The values, those of personal columns masked."""
        return {column: MASK if column in self.personal else value for column, value in self.values.items()}


def view_rows(store: TableStore, group: str, generation: int, view: str, *, limit: int = _LIMIT) -> ViewRows:
    """Return the first rows of a view of a generation, in no order, and how many there are."""
    table = view_table(store.space(Run(group, generation, "")), view, {})
    every: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(table)
    counted = sa.select(sa.func.count()).select_from(
        sa.select(sa.literal(1)).select_from(table).limit(COUNTED).subquery()
    )
    with store.looking() as connection:
        result = connection.execute(every.limit(limit))
        columns = tuple(result.keys())
        rows, total = [tuple(row) for row in result], int(connection.scalar(counted) or 0)
    return ViewRows(columns, rows, total, personal_of(store.state(Run(group, generation, "")), "views", view, columns))


def personal_of(
    state: RunState | None, kind: Kinds, name: str, columns: Collection[str], key: Sequence[str] = ()
) -> tuple[str, ...]:
    """The columns of a view or a table that the build of a generation noted as personal, without those of the key.

    Without a note each column is one, if the generation follows erasures.
    """
    noted: Mapping[str, list[str]] = {} if state is None else state.built.get("personal", {}).get(kind, {})
    follows = state is not None and ERASURES in state.progress
    personal = noted[name] if name in noted else columns if follows else ()
    return tuple(column for column in columns if column in personal and column not in key)


def rows_behind(
    store: TableStore, group: ProjectionGroup, generation: int, view: str, key: Mapping[str, str]
) -> list[SourceRow]:
    """Return the row of a key with the rows that it was made of; nothing if the view has no such row.

    `key` has the text of each key column. Raises InvalidDefinition if the view or a key column is unknown, or a text is
    no value of the column.
    """
    with stored_rows(store, group, generation) as held:
        return list(Walk(group, held).behind(view, key))


@contextmanager
def stored_rows(store: TableStore, group: ProjectionGroup, generation: int) -> Iterator[StoredRows]:
    """The rows of a generation, by queries of one connection."""
    state = store.state(Run(group.name, generation, ""))
    with store.looking() as connection:
        yield StoredRows(store, connection, group, generation, state)


class HeldRows(Protocol):
    """Rows of views and tables by values of their columns: those of a generation, or computed from the log."""

    def built(self, view: View) -> View:
        """The view with its references or stages."""

    def typed(self, view: View, key: Mapping[str, Any]) -> dict[str, Any]:
        """A key of texts as values of its columns; InvalidDefinition."""

    def of_view(self, view: View, key: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The rows of a view with a key, whose values may be texts."""

    def of_table(self, table: Table, conditions: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The rows of a table with values of its columns, deleted ones too, with their places."""

    def personal(self, kind: Kinds, name: str, columns: Collection[str], key: Sequence[str]) -> tuple[str, ...]:
        """The columns of a view or a table whose values may be of a person."""


@dataclass(frozen=True)
class Walk:
    """From a row of a view to the rows that it is made of."""

    group: ProjectionGroup
    held: HeldRows

    def behind(self, view: str, key: Mapping[str, Any]) -> Iterator[SourceRow]:
        """The row of a key with its sources; nothing if the view has no such row. InvalidDefinition."""
        return self._of_view(self._known(view, key), key, "the key", depth=0)

    def sources(self, view: str, key: Mapping[str, Any], row: Mapping[str, Any] | None = None) -> Iterator[SourceRow]:
        """What the row of a key is made of, or would be. Of a partition, a ``row`` says which it is."""
        known = self._known(view, key)
        own = self.held.typed(known, key)
        row = {**own, **(row or {})}
        return self._sources(known, row, own, depth=0) if set(known.by) <= set(row) else iter(())

    def _known(self, view: str, key: Mapping[str, Any]) -> View:
        definition = self.held.built(self.group.view(view))
        require_key(definition, key)
        return definition

    def _of_view(self, view: View, key: Mapping[str, Any], reached: str, *, depth: int) -> Iterator[SourceRow]:
        view = self.held.built(view)
        for row in self.held.of_view(view, key):
            own = {column: row.get(column) for column in view.key}
            personal = self.held.personal("views", view.name, row, view.key)
            yield SourceRow(view.name, reached, own, row, of_view=view.name, personal=personal)
            if depth < _DEPTH:
                yield from self._sources(view, row, own, depth)

    def _sources(self, view: View, row: Mapping[str, Any], key: Mapping[str, Any], depth: int) -> Iterator[SourceRow]:
        return self._of_partition(view, row, depth) if view.by else self._of_root(view, key, depth)

    def _of_partition(self, view: View, row: Mapping[str, Any], depth: int) -> Iterator[SourceRow]:
        for name, table in view.tables.items():
            conditions = {held: row[column] for column, held in zip(view.by, view.root_key_in(name), strict=True)}
            yield from self._rows_of(name, table, conditions, f"the partition of {_said(conditions)}", depth)

    def _of_root(self, view: View, key: Mapping[str, Any], depth: int) -> Iterator[SourceRow]:
        """Downwards from the root: each row that was found gives the keys of those that it refers to."""
        walk = plan(view)
        conditions = {
            name: {held: key[c] for c, held in zip(view.root_key, view.root_key_in(name), strict=True)}
            for name in view.roots
        }
        times: dict[str, int | None] = {}
        for name in walk.downwards:
            if name not in conditions:
                continue
            reached = "the key" if name in view.roots else f"{_said(conditions[name])}"
            rows = list(self._rows_of(name, view.tables[name], conditions[name], reached, depth))
            if view.tables[name].holds_versions and (time := times.get(name)) is not None:
                rows = _valid_at(rows, time)
            yield from rows
            own = next((row for row in rows if row.table == _shown_name(name, view.tables[name])), None)
            for reference in walk.references_from(name) if own else ():
                target = view.tables[reference.target]
                values = [own.values.get(column) for column in reference.columns] if own else []
                if None not in values:
                    conditions[reference.target] = dict(zip(target.key, values, strict=False))
                    times[reference.target] = own.time if own else None

    def _rows_of(
        self, name: str, table: AnyTable | View, conditions: Mapping[str, Any], reached: str, depth: int
    ) -> Iterator[SourceRow]:
        view = view_behind(table)
        if view is not None:
            yield from self._of_view(view, conditions, reached, depth=depth + 1)
        elif isinstance(table, Table):
            yield from self._table_rows(name, table, conditions, reached)

    def _table_rows(self, name: str, table: Table, conditions: Mapping[str, Any], reached: str) -> Iterator[SourceRow]:
        if not set(conditions) <= set(table.columns):
            return
        own = self.group.name_of(table)
        for row in self.held.of_table(table, conditions):
            values = {column: row[column] for column in table.columns}
            key = {column: row[column] for column in table.row_key if column in row}
            yield SourceRow(
                name, reached, key, values, topic=table.topic, offset=row["_offset"], deleted=bool(row["_deleted"]),
                stream=_stream(table, values), personal=self.held.personal("tables", own, values, table.row_key),
                time=row.get(VALID_FROM, row.get(EVENT_TIME)),
            )  # fmt: skip


@dataclass(frozen=True)
class StoredRows:
    """The rows of one generation."""

    store: TableStore
    connection: sa.Connection
    group: ProjectionGroup
    generation: int
    state: RunState | None

    def built(self, view: View) -> View:
        """The view with its references or stages, which the build of the generation noted."""
        return with_noted(view, {} if self.state is None else self.state.built.get("references", {}))

    def typed(self, view: View, key: Mapping[str, Any]) -> dict[str, Any]:
        """As the database has them: a text stays where it has a text for the value, too."""
        kinds = {column: column_of(view, column) for column in key}
        return {c: value if self._is_text(kinds[c]) else typed(kinds[c], c, value) for c, value in key.items()}

    def of_view(self, view: View, key: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The rows of a view with a key."""
        table = view_table(self._space(), view.name, {})
        same = _equal(self.store, view, self.typed(view, key))
        query: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(table).where(*same).limit(_LIMIT)
        return [dict(row) for row in self.connection.execute(query).mappings()]

    def of_table(self, table: Table, conditions: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The rows of a table's state."""
        state = state_table(self._space(), self.group.name_of(table), table.whole)
        equal = (state.c[column] == value for column, value in conditions.items())
        return [dict(row) for row in self.connection.execute(sa.select(state).where(*equal).limit(_LIMIT)).mappings()]

    def personal(self, kind: Kinds, name: str, columns: Collection[str], key: Sequence[str]) -> tuple[str, ...]:
        """As the build noted them."""
        return personal_of(self.state, kind, name, columns, key)

    def _is_text(self, kind: ColumnType | None) -> bool:
        return kind is None or (kind.kind != "string" and isinstance(self.store.dialect.column_type(kind), sa.Text))

    def _space(self) -> NameSpace:
        return self.store.space(Run(self.group.name, self.generation, ""))


def require_key(view: View, key: Collection[str], columns: Collection[str] | None = None) -> None:
    """Raise InvalidDefinition unless these are the view's key, and of these columns if there are any."""
    if {*key} != {*view.key} or not {*key} <= {*(key if columns is None else columns)}:
        raise InvalidDefinition(
            f"view {view.name!r} has no key of {', '.join(sorted(key))}", remedy=f"give its key: {', '.join(view.key)}"
        )


def typed(kind: ColumnType | None, column: str, value: Any) -> Any:
    """A text as a value of its column; InvalidDefinition."""
    if kind is None or not isinstance(value, str):
        return value
    try:
        return _PARSED[kind.kind](value)
    except (ValueError, InvalidOperation):
        raise InvalidDefinition(
            f"{value[:80]!r} is no {kind.kind} of column {column!r}", remedy="correct the key"
        ) from None


def _equal(store: TableStore, view: View, key: Mapping[str, Any]) -> Iterator[sa.ColumnElement[bool]]:
    """Compare each column as the database types it, and one whose type is unknown as text."""
    for column, value in key.items():
        kind, name = column_of(view, column), sa.quoted_name(column, quote=True)
        if value is None:
            yield sa.column(name).is_(None)
        elif kind is None:
            yield sa.cast(sa.column(name), sa.Text) == str(value)
        else:
            yield sa.column(name, store.dialect.column_type(kind)) == value


def column_of(view: View, column: str) -> ColumnType | None:
    """The type of a key column, as the table has it that gives the view its key."""
    tables = (table for table in view.tables.values() if isinstance(table, AnyTable))
    return next((table.columns[column] for table in tables if column in table.columns), None)


def _valid_at(versions: list[SourceRow], time: int) -> list[SourceRow]:
    """The version that a join by time chooses: in the order of the source, the last that is valid by then."""
    ordered = sorted(versions, key=lambda row: (row.key["_epoch"], row.key["_pos"]))
    known = [row for row in ordered[:1] if row.key["_pos"] < 0]  # by a snapshot: since when is not known
    return [*known, *(row for row in ordered if row.time is not None and row.time <= time)][-1:]


def _stream(table: Table, values: Mapping[str, Any]) -> str | None:
    folded = table.is_dense and not table.append_only
    return f"{table.category}-{values[table.key[0]]}" if folded else None


def _shown_name(name: str, table: AnyTable | View) -> str:
    view = view_behind(table)
    return name if view is None else view.name


def _said(conditions: Mapping[str, Any]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in conditions.items())
