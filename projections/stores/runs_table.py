"""Our own table of runs; one that an earlier release made is given the columns it lacks."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB


def _json() -> sa.JSON:
    return sa.JSON().with_variant(JSONB(), "postgresql")


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def _runs_table(name: str, schema: str | None) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(schema=schema),
        sa.Column("group_name", sa.Text, primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),  # building → built → serving → retired
        sa.Column("token", sa.Text),
        sa.Column("progress", _json()),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
        # Since 0.1.0 was begun; a table without them is altered, and its rows know no version.
        sa.Column("version", sa.Integer),
        sa.Column("holder", sa.Text),
        sa.Column("built", _json()),
        _flag("paused"),
        _flag("held"),
    )


_IN_A_SCHEMA, _BY_NAME = _runs_table("runs", "factfold"), _runs_table("factfold_runs", None)


def runs_table(connection: sa.Connection) -> sa.Table:
    """The table as this database has it: in a schema of ours, where there are schemas."""
    return _IN_A_SCHEMA if connection.dialect.name == "postgresql" else _BY_NAME


def create_runs_table(connection: sa.Connection) -> None:
    """Create our own table, and its schema where there are schemas, unless they are there; add what it lacks."""
    runs = runs_table(connection)
    if runs.schema and not sa.inspect(connection).has_schema(runs.schema):  # a role that only reads may lack the right
        connection.execute(sa.schema.CreateSchema(runs.schema, if_not_exists=True))
    runs.create(connection, checkfirst=True)
    present = {column["name"] for column in sa.inspect(connection).get_columns(runs.name, schema=runs.schema)}
    for column in runs.columns:
        if column.name not in present:
            _add(connection, runs, column)


def _add(connection: sa.Connection, runs: sa.Table, column: sa.Column[object]) -> None:
    """Add a column; of two processes at once the second finds it there (SQLite holds the write lock throughout)."""
    unless_there = "IF NOT EXISTS " if connection.dialect.name == "postgresql" else ""
    table = connection.dialect.identifier_preparer.format_table(runs)
    declared = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
    connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {unless_there}{declared}"))
