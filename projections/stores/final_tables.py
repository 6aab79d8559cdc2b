"""Our own tables of final results: what was given out, what came after it, and what is published of it."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB


@dataclass(frozen=True)
class FinalTables:
    """``results`` in the order they were given out, ``late`` changes in the order they came, ``passed`` by view.

    ``topics`` says up to which number the results are in a topic, and where it ended before the last of them were sent.
    """

    results: sa.Table
    late: sa.Table
    passed: sa.Table
    topics: sa.Table


def _tables(prefix: str, schema: str | None) -> FinalTables:
    metadata = sa.MetaData(schema=schema)
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

    def listed(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
        return sa.Table(
            f"{prefix}{name}",
            metadata,
            sa.Column("seq", number, primary_key=True, autoincrement=True),
            sa.Column("group_name", sa.Text, nullable=False),
            sa.Column("view", sa.Text, nullable=False),
            sa.Column("key", sa.Text, nullable=False),
            sa.Column("value", sa.Text),
            *columns,
            sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
            sqlite_autoincrement=True,
        )

    results = listed("final_results", sa.UniqueConstraint("group_name", "view", "key"))
    late = listed("late_changes", sa.Column("reason", sa.Text, nullable=False))
    passed = sa.Table(
        f"{prefix}final_times",
        metadata,
        sa.Column("group_name", sa.Text, primary_key=True),
        sa.Column("view", sa.Text, primary_key=True),
        sa.Column("upto", sa.BigInteger, nullable=False),
        sa.Column("next_due", sa.BigInteger),
    )
    topics = sa.Table(
        f"{prefix}final_topics",
        metadata,
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("view", sa.Text, nullable=False),
        sa.Column("filled", sa.Boolean, nullable=False),  # by the generation that serves
        sa.Column("upto", sa.BigInteger, nullable=False, default=0),
        sa.Column("ends", sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")),
        sa.Column("revision", sa.BigInteger, nullable=False, default=0),
    )
    sa.Index(f"{prefix}late_changes_of_view", late.c.group_name, late.c.view)
    sa.Index(f"{prefix}final_results_by_number", results.c.group_name, results.c.view, results.c.seq)
    return FinalTables(results, late, passed, topics)


_IN_A_SCHEMA, _BY_NAME = _tables("", "factfold"), _tables("factfold_", None)


def final_tables(connection: sa.Connection) -> FinalTables:
    """The tables as this database has them."""
    return _IN_A_SCHEMA if connection.dialect.name == "postgresql" else _BY_NAME


def create_final_tables(connection: sa.Connection) -> None:
    """Create them unless they are there, with the index that earlier ones do not have; the schema is."""
    results = final_tables(connection).results
    results.metadata.create_all(connection, checkfirst=True)
    for index in results.indexes:
        index.create(connection, checkfirst=True)
