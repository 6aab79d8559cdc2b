"""The tables of one generation, as SQLAlchemy objects.

A generation has a database schema of its own, ``factfold_{group}_{generation}``; dropping it drops everything. In it,
for each table of the group: ``state_*`` (current rows, deleted ones marked), ``staged_*`` (what the batch brings),
``affected_*`` (keys the batch reaches), ``slice_*`` (rows handed to the view function), ``stored_*`` (rows a Python
fold goes on from); for each view: ``view_*``, ``result_*`` (what the function returned) and ``retracted_*``.
Everything but state and view is UNLOGGED: a crash of the server empties it, the ``batch`` table with the batch's mark
included, and without its mark no batch is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from projections.columns import ColumnType
from projections.group import ProjectionGroup
from projections.tables import EventTable, Table, set_at

POSITION = ("_epoch", "_pos", "_offset")


def sql_type(column: ColumnType) -> sa.types.TypeEngine[Any]:
    """The SQL type that holds a column; its binary form is what Arrow's COPY writes."""
    if column.kind == "decimal":
        return sa.Numeric(column.precision, column.scale)
    kinds: Mapping[str, sa.types.TypeEngine[Any]] = {
        "string": sa.Text(), "int": sa.Integer(), "long": sa.BigInteger(), "double": sa.Double(),
        "boolean": sa.Boolean(), "timestamp": sa.DateTime(timezone=True), "date": sa.Date(), "binary": sa.LargeBinary(),
    }  # fmt: skip
    return kinds[column.kind]


def generation_schema(group: str, generation: int) -> str:
    """The database schema of one generation."""
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
        """The key columns."""
        return self.table.key


@dataclass(frozen=True)
class ViewLayout:
    """The three SQL tables behind one view."""

    key: str
    columns: Mapping[str, ColumnType]
    view: sa.Table
    result: sa.Table
    retracted: sa.Table


@dataclass(frozen=True)
class GenerationLayout:
    """Every SQL table of one generation."""

    schema: str
    metadata: sa.MetaData
    tables: Mapping[str, TableLayout]
    views: Mapping[str, ViewLayout]
    marker: sa.Table

    def working_tables(self) -> list[sa.Table]:
        """The tables that a batch starts by emptying; the marker names the batch whose changes the others hold."""
        of_tables = [
            t for layout in self.tables.values() for t in (layout.staged, layout.affected, layout.slice, layout.stored)
        ]
        return [self.marker, *of_tables] + [
            t for layout in self.views.values() for t in (layout.result, layout.retracted)
        ]


def lay_out(
    group: ProjectionGroup, generation: int, view_columns: Mapping[str, Mapping[str, ColumnType]]
) -> GenerationLayout:
    """Name and type every table of a generation; ``view_columns`` is what the view functions return."""
    schema = generation_schema(group.name, generation)
    metadata = sa.MetaData(schema=schema)
    tables = {name: _table_layout(metadata, name, table) for name, table in group.tables.items()}
    views = {view.name: _view_layout(metadata, view.name, view.key, view_columns[view.name]) for view in group.views}
    return GenerationLayout(schema, metadata, tables, views, _unlogged("batch", metadata, sa.Column("id", sa.Text)))


def _table_layout(metadata: sa.MetaData, name: str, table: Table) -> TableLayout:
    key = {column: table.columns[column] for column in table.key}
    return TableLayout(
        table,
        sa.Table(f"state_{name}", metadata, *_columns(table.columns), *_position_columns()),
        _unlogged(f"staged_{name}", metadata, *_columns(table.columns), *_staging_columns(table)),
        _unlogged(f"affected_{name}", metadata, *_columns(key)),
        _unlogged(f"slice_{name}", metadata, *_columns(table.columns)),
        _unlogged(f"stored_{name}", metadata, *_columns(table.columns), sa.Column("_pos", sa.BigInteger)),
    )


def _view_layout(metadata: sa.MetaData, name: str, key: str, columns: Mapping[str, ColumnType]) -> ViewLayout:
    return ViewLayout(
        key,
        columns,
        sa.Table(f"view_{name}", metadata, *_columns(columns)),
        _unlogged(f"result_{name}", metadata, *_columns(columns), sa.Column("_task", sa.Integer)),
        _unlogged(f"retracted_{name}", metadata, *_columns({key: columns[key]})),
    )


def _columns(columns: Mapping[str, ColumnType]) -> list[sa.Column[Any]]:
    return [sa.Column(name, sql_type(column)) for name, column in columns.items()]


def _position_columns() -> list[sa.Column[Any]]:
    return [*(sa.Column(name, sa.BigInteger) for name in POSITION), sa.Column("_deleted", sa.Boolean)]


def _staging_columns(table: Table) -> list[sa.Column[Any]]:
    """Position, the writing task, and what the fold or the changelog needs to be completed from the stored row."""
    extra: list[sa.Column[Any]] = [*_position_columns(), sa.Column("_task", sa.Integer)]
    if isinstance(table, EventTable):
        extra += [sa.Column("_first", sa.BigInteger), sa.Column("_count", sa.BigInteger)]
    return extra + [sa.Column(set_at(column), sa.BigInteger) for column in table.sometimes_unset]


def _unlogged(name: str, metadata: sa.MetaData, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, metadata, *columns, prefixes=["UNLOGGED"])
