"""The tables of one generation, as SQLAlchemy objects.

A generation is named ``factfold_{group}_{generation}``: a database schema of its own on PostgreSQL, a prefix of its
tables' names on SQLite; dropping it drops everything. In it, for each table of the group: ``state_*`` (current rows,
deleted ones marked), ``staged_*`` (what the batch brings), ``affected_*`` (keys the batch reaches), ``slice_*`` (rows
handed to the view function), ``stored_*`` (rows a Python fold goes on from); for each view: ``view_*``, ``result_*``
(what the function returned) and ``retracted_*``; for personal columns ``destroyed`` (keys whose destruction the batch
brings); and ``set_aside``, the records that were not applied. Everything but state, view and that is UNLOGGED where
there is such a thing: a crash of the server empties it, the ``batch`` table with the batch's mark included, and without
its mark no batch is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from projections.columns import ColumnType
from projections.group import ProjectionGroup
from projections.tables import EventTable, Table, VersionTable, set_at
from projections.tablestore.dialects import Dialect, NameSpace

POSITION = ("_epoch", "_pos", "_offset")
SINCE = "_since"  # in ``affected_*`` of versions: from which event time on the batch changes what is valid


def generation_name(group: str, generation: int) -> str:
    """The schema, or the prefix, of one generation."""
    return f"factfold_{group}_{generation}"


@dataclass(frozen=True)
class TableLayout:
    """The SQL tables behind one table of the group."""

    table: Table
    state: sa.Table
    staged: sa.Table
    affected: sa.Table
    slice: sa.Table
    stored: sa.Table

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, which references hold."""
        return self.table.key

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that tell two rows of the state apart."""
        return self.table.row_key


@dataclass(frozen=True)
class ViewLayout:
    """The SQL tables behind one view; the two copies exist while it is verified."""

    name: str
    key: str
    columns: Mapping[str, ColumnType]
    view: sa.Table
    result: sa.Table
    retracted: sa.Table
    live_copy: sa.Table
    recomputed_copy: sa.Table


@dataclass(frozen=True)
class GenerationLayout:
    """Every SQL table of one generation."""

    name: str
    metadata: sa.MetaData
    tables: Mapping[str, TableLayout]
    views: Mapping[str, ViewLayout]
    marker: sa.Table
    destroyed: sa.Table | None
    aside: sa.Table

    def working_tables(self) -> list[sa.Table]:
        """The tables that a batch starts by emptying; the marker names the batch whose changes the others hold."""
        of_tables = [
            t for layout in self.tables.values() for t in (layout.staged, layout.affected, layout.slice, layout.stored)
        ]
        of_batch = [self.marker] if self.destroyed is None else [self.marker, self.destroyed]
        return [*of_batch, *of_tables] + [
            t for layout in self.views.values() for t in (layout.result, layout.retracted)
        ]


def lay_out(
    group: ProjectionGroup,
    generation: int,
    view_columns: Mapping[str, Mapping[str, ColumnType]],
    *,
    dialect: Dialect,
) -> GenerationLayout:
    """Name and type every table of a generation; ``view_columns`` is what the view functions return."""
    space = dialect.name_space(generation_name(group.name, generation))
    tables = {name: _table_layout(space, name, table) for name, table in group.tables.items()}
    views = {view.name: _view_layout(space, view.name, view.key, view_columns[view.name]) for view in group.views}
    marker = space.unlogged("batch", sa.Column("id", sa.Text))
    destroyed = space.unlogged("destroyed", sa.Column("key_id", sa.Text)) if group.personal else None
    return GenerationLayout(space.generation, space.metadata, tables, views, marker, destroyed, _aside(space))


def _table_layout(space: NameSpace, name: str, table: Table) -> TableLayout:
    affected = {column: table.columns[column] for column in table.key}
    if isinstance(table, VersionTable):
        affected[SINCE] = ColumnType("long")
    return TableLayout(
        table,
        space.logged(f"state_{name}", *space.columns(table.stored), *_position_columns()),
        space.unlogged(f"staged_{name}", *space.columns(table.stored), *_staging_columns(table)),
        space.unlogged(f"affected_{name}", *space.columns(affected)),
        space.unlogged(f"slice_{name}", *space.columns(table.sliced)),
        space.unlogged(f"stored_{name}", *space.columns(table.columns), sa.Column("_pos", sa.BigInteger)),
    )


def _view_layout(space: NameSpace, name: str, key: str, columns: Mapping[str, ColumnType]) -> ViewLayout:
    return ViewLayout(
        name,
        key,
        columns,
        space.logged(f"view_{name}", *space.columns(columns)),
        space.unlogged(f"result_{name}", *space.columns(columns), sa.Column("_task", sa.Integer)),
        space.unlogged(f"retracted_{name}", *space.columns({key: columns[key]})),
        space.apart(f"verify_live_{name}", *space.columns(columns)),
        space.apart(f"verify_again_{name}", *space.columns(columns)),
    )


def _aside(space: NameSpace) -> sa.Table:
    """Records that are not applied, by their places; it outlives them and goes with the generation."""
    return space.logged(
        "set_aside",
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.func.now()),
    )


def _position_columns() -> list[sa.Column[Any]]:
    return [*(sa.Column(name, sa.BigInteger) for name in POSITION), sa.Column("_deleted", sa.Boolean)]


def _staging_columns(table: Table) -> list[sa.Column[Any]]:
    """Position, the writing task, and what the fold or the changelog needs to be completed from the stored row."""
    extra: list[sa.Column[Any]] = [*_position_columns(), sa.Column("_task", sa.Integer)]
    if isinstance(table, EventTable):
        extra += [sa.Column("_first", sa.BigInteger), sa.Column("_count", sa.BigInteger)]
    return extra + [sa.Column(set_at(column), sa.BigInteger) for column in table.sometimes_unset]
